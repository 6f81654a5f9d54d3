"""One example per kind of record and topic, picked from samples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from skewless.asyncapi.messages import ARROW, JSON, Message, find
from skewless.asyncapi.samples import Samples
from skewless.records import Output, read_table

COLUMNS = {
    "key": "The key.",
    "value": "Fixed-point number: times 10 to the power of `splitter.value.decimals`.",
    "time": "Event time, ms since the epoch (UTC).",
    "pane": "Start of the pane, ms since the epoch.",
    "worker": "The worker that held the key: the partition of worker-input.",
    "told": "How often the key was written.",
}
"""Meanings of columns."""
PARTIAL = "Partial result, in fixed-point numbers; there are as many as `aggregator.aggregates` need."


@dataclass(frozen=True, slots=True)
class Example:
    """One record as it was written."""

    topic: str
    record: Output

    @property
    def headers(self) -> dict[str, str]:
        """Its headers as text."""
        return {name: fact.decode() for name, fact in self.record.headers}

    @property
    def key(self) -> str | None:
        """Its key as text."""
        return None if self.record.key is None else self.record.key.decode()

    def payload(self, message: Message) -> Any:
        """Tell its value, as JSON or as text; None where it is binary or empty."""
        if self.record.value is None or message.content_type not in (JSON, "application/octet-stream"):
            return None
        text = self.record.value.decode()
        return json.loads(text) if message.content_type == JSON else text

    def columns(self, message: Message) -> dict[str, dict[str, str]]:
        """Describe its Arrow columns, none where it has none."""
        if message.content_type != ARROW:
            return {}
        return {
            column.name: {"type": str(column.type), "description": COLUMNS.get(column.name, PARTIAL)}
            for column in read_table(self.record.value).schema
        }


def examples(samples: Samples) -> dict[str, Example]:
    """Pick one record of each kind, by the kind's name."""
    return dict(reversed(list(_all(samples))))


def _all(samples: Samples) -> Iterator[tuple[str, Example]]:
    for topic, records in samples.items():
        for record in _best_first(records):
            message = find(topic, record.key, record.value, dict(record.headers))
            if message is not None:
                yield message.name, Example(topic, record)


def _best_first(records: Sequence[Output]) -> Sequence[Output]:
    """Put records that say most first: those with marks show what the header is like."""
    return sorted(records, key=lambda record: -len(record.headers))
