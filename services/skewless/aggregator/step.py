"""Deltas of panes become windows by key: the only long-lived state of the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from skewless.algorithms.aggregates import Aggregate, PartialColumn
from skewless.algorithms.watermark import END_OF_TIME, OriginMarks
from skewless.algorithms.windowed import Emission, Windows
from skewless.changelog import chunk_outputs, chunks_by_window
from skewless.errors import BadRecordError
from skewless.records import (
    PARTIALS,
    PROGRESS,
    Batch,
    Headers,
    Output,
    dead_letter,
    read_table,
    schema_of,
    watermarks_of,
    write_table,
)
from skewless.step import Step


class Saved(msgspec.Struct):
    """What an aggregator partition saves beside its offset."""

    marks: dict[int, int]
    closed_to: int | None


def read_saved(position: str | None) -> Saved:
    """Read what was saved; a partition that was never committed begins with nothing."""
    return msgspec.json.decode(position, type=Saved) if position else Saved({}, None)


@dataclass(frozen=True, slots=True)
class AggregatorRules:
    """What windows are made of."""

    aggregates: Sequence[Aggregate]
    columns: Sequence[PartialColumn]
    window_ms: int
    keep_closed_ms: int
    updates: bool
    decimals: int


@dataclass(slots=True)
class _Input:
    marks: OriginMarks
    windows: Windows
    ended: bool = False


class AggregatorStep(Step):
    """Merges deltas into windows and emits one record per window and key, as it changes or when it is final."""

    def __init__(self, rules: AggregatorRules, *, origins: int, topic: str) -> None:
        self._rules = rules
        self._origins = origins
        self._topic = topic
        self._inputs: dict[int, _Input] = {}

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Take back marks and windows as they were at the last commit."""
        rules, saved = self._rules, read_saved(position)
        marks = OriginMarks(self._origins)
        marks.restore(saved.marks)
        windows = Windows(rules.columns, rules.window_ms, rules.keep_closed_ms, updates=rules.updates)
        windows.closed_to = saved.closed_to
        for window, chunks in chunks_by_window(state).items():
            windows.restore(window, {number: read_table(value) if value else None for number, value in chunks.items()})
        self._inputs[partition] = _Input(marks, windows)

    def revoke(self, partition: int) -> None:
        """Forget the partition; its state stands in the changelog."""
        self._inputs.pop(partition, None)

    def missing(self, batch: Batch) -> set[int]:
        """Closed windows that the batch belongs to: they must be given back by `reopen` before it is processed."""
        mine = self._inputs.get(batch.partition)
        if mine is None or mine.windows.closed_to is None:
            return set()
        missing: set[int] = set()
        for value, headers in zip(batch.values, batch.headers, strict=True):
            if value is not None and (PARTIALS.encode()) in (header for _, header in headers):
                missing |= mine.windows.missing(read_table(value)["pane"].to_numpy())
        return missing

    def reopen(self, partition: int, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Take back closed windows from their chunks."""
        for window, chunks in chunks_by_window(state).items():
            tables = {number: read_table(value) for number, value in chunks.items()}
            self._inputs[partition].windows.reopen(window, tables)

    def process(self, batch: Batch, now: int) -> Iterator[Output]:  # noqa: ARG002 - event time only
        """Merge the deltas of a batch."""
        mine = self._inputs[batch.partition]
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                refused = self._take_in(mine, value, headers)
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)
            else:
                if refused is not None:
                    yield Output("dead-letters", write_table(refused), headers=_refusal(self._topic, batch, index))

    def _take_in(self, mine: _Input, value: bytes | None, headers: Headers) -> pa.Table | None:
        schema, marks = schema_of(headers), watermarks_of(headers)
        refused = None
        if schema == PARTIALS:
            partials = read_table(value)
            self.tuples += int(partials["count"].to_numpy().sum())
            refused = mine.windows.merge(partials)
        elif schema != PROGRESS:
            raise BadRecordError(f"unknown schema {schema}")
        try:
            mine.marks.tell(marks)
        except ValueError as error:
            raise BadRecordError(str(error)) from error
        return refused

    def flush(self, now: int) -> Iterable[Output]:  # noqa: ARG002 - event time only
        """Write what changed to the changelog, and emit what is due."""
        for partition, mine in self._inputs.items():
            watermark = mine.marks.watermark()
            chunks, emissions = mine.windows.flush(watermark)
            mine.ended = watermark == END_OF_TIME
            yield from chunk_outputs("windows", partition, chunks)
            for emission in emissions:
                yield from self._results(partition, emission)

    def _results(self, partition: int, emission: Emission) -> Iterator[Output]:
        """One record per key: public topics carry one fact each, so this is per-record work."""
        rules, window = self._rules, emission.window
        named = {aggregate.name: _scaled(aggregate, emission.data, rules.decimals) for aggregate in rules.aggregates}
        names = ["key", "window_start", "window_end", *named, "revision"]
        size = len(emission.keys)
        columns = [
            emission.keys,
            [window] * size,
            [window + rules.window_ms] * size,
            *(column.tolist() for column in named.values()),
            emission.data["revision"].tolist(),
        ]
        encode = msgspec.json.encode
        for row in zip(*columns, strict=True):
            key = f"{window}/{row[0]}".encode()
            yield Output("aggregates", encode(dict(zip(names, row, strict=True))), key, partition, window)

    def position(self, partition: int) -> str:
        """Save marks, and what is closed."""
        mine = self._inputs[partition]
        return msgspec.json.encode(Saved(mine.marks.snapshot(), mine.windows.closed_to)).decode()

    def watermark(self, partition: int) -> int | None:
        """Tell the least mark of the partition's origins."""
        return self._inputs[partition].marks.watermark()

    def finished(self, partition: int) -> bool:
        """Whether all windows of the partition were closed by the end of time."""
        return self._inputs[partition].ended


def _scaled(aggregate: Aggregate, data: Mapping[str, object], decimals: int) -> np.ndarray:  # type: ignore[type-arg]
    result = aggregate.result(data)  # type: ignore[arg-type]
    return result if not decimals or aggregate.name == "count" else result / 10**decimals


def _refusal(topic: str, batch: Batch, index: int) -> Headers:
    facts = {
        "topic": topic,
        "partition": batch.partition,
        "offset": batch.offsets[index],
        "reason": "window is forgotten",
    }
    return [(f"__skewless.errors.{name}", str(fact).encode()) for name, fact in facts.items()]
