"""Selects one example record for each message from the records of the example run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from skewless.algorithms import int128
from skewless.algorithms.windowing.window import EMIT_COUNT
from skewless.asyncapi.example_run import Samples
from skewless.asyncapi.messages import TUPLES_V2_MESSAGE, Message, find
from skewless.wire.columns import read_table
from skewless.wire.headers import ARROW, BYTES, JSON
from skewless.wire.record import OutputRecord

COLUMNS = {
    "key": "The key.",
    "value": "Fixed-point integer: the value times 10 to the power of `splitter.value.decimals`.",
    "time": "Event time, ms since the epoch (UTC).",
    "pane": "Start of the pane, ms since the epoch.",
    "worker": "Worker that aggregated the key: the partition of worker-input.",
    EMIT_COUNT.name: "Number of times that a result of the key was emitted.",
}
"""Descriptions of Arrow columns by name."""
VALUES = {
    "int64": "Value as fixed-point integer: times 10 to the power of its `decimals`.",
    "dictionary<values=string, indices=int32, ordered=0>": "Value as text. Null if the tuple does not have it.",
}
"""Descriptions of columns of named values by type."""
PARTIALS = {
    "int64": "Partial result as fixed-point integer. `aggregator.aggregates` determines the number of these columns.",
    str(int128.TYPE): "Partial result as integer. Columns whose numbers all fit into 64 bits are int64.",
    "binary": "Partial result in the format of its aggregate.",
}
"""Descriptions of partial columns by type."""


@dataclass(frozen=True, slots=True)
class Example:
    """One record of the example run."""

    topic: str
    record: OutputRecord

    @property
    def headers(self) -> dict[str, str]:
        """Headers as text."""
        return {name: value.decode() for name, value in self.record.headers}

    @property
    def key(self) -> str | None:
        """Key as text; None if the record has no key."""
        return None if self.record.key is None else self.record.key.decode()

    def payload(self, message: Message) -> Any:
        """Return the value as JSON document or text; None if it is binary or missing."""
        is_binary = isinstance(message.payload, dict) and message.payload.get("format") == "binary"
        if self.record.value is None or is_binary or message.content_type not in (JSON, BYTES):
            return None
        text = self.record.value.decode()
        return json.loads(text) if message.content_type == JSON else text

    def columns(self, message: Message) -> dict[str, dict[str, str]]:
        """Return the type and description of each Arrow column; empty if the value is not Arrow."""
        if message.content_type != ARROW:
            return {}
        others = VALUES if message == TUPLES_V2_MESSAGE else PARTIALS
        return {
            column.name: {
                "type": str(column.type),
                "description": COLUMNS.get(column.name) or others[str(column.type)],
            }
            for column in read_table(self.record.value).schema
        }


def examples(samples: Samples) -> dict[str, Example]:
    """Return one record of each message, by the message's name."""
    first: dict[str, Example] = {}
    for name, example in _examples_by_message(samples):
        first.setdefault(name, example)
    return first


def _examples_by_message(samples: Samples) -> Iterator[tuple[str, Example]]:
    for topic, records in samples.items():
        for record in _most_headers_first(records):
            message = find(topic, record.key, record.value, dict(record.headers))
            if message is not None:
                yield message.name, Example(topic, record)


def _most_headers_first(records: Sequence[OutputRecord]) -> Sequence[OutputRecord]:
    """Sort records by the number of headers, so that the example of an internal record has watermarks."""
    return sorted(records, key=lambda record: -len(record.headers))
