"""Deltas of panes become windows by key: the only long-lived state of the pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import Aggregate, PartialColumn, Results
from skewless.algorithms.watermark import END_OF_TIME
from skewless.algorithms.windowed import Chunk, Emission, Windows
from skewless.changelog import chunk_output, chunks_by_window
from skewless.errors import BadRecordError
from skewless.public_records import aggregate_type
from skewless.records import (
    PARTIALS,
    PROGRESS,
    Batch,
    Headers,
    Output,
    dead_letter,
    dead_letter_rows,
    expect,
    fact_timestamp,
    read_partials,
    read_table,
    schema_of,
)
from skewless.step import Sample
from skewless.windows_step import UNLIMITED, Input, StateLimit, WindowsStep

ROWS = 8192
"""Results that are Python's values at the same time."""
FORGOTTEN = "window is forgotten"
"""The reason of a dead letter whose columns came too late for a window that was closed."""


@dataclass(frozen=True, slots=True)
class AggregatorRules:
    """What windows are made of."""

    aggregates: Sequence[Aggregate]
    columns: Sequence[PartialColumn]
    window_ms: int
    keep_closed_ms: int
    updates: bool
    decimals: int
    limit: StateLimit = UNLIMITED


class AggregatorStep(WindowsStep):
    """Merges deltas into windows and emits one record per window and key, as it changes or when it is final."""

    def __init__(self, rules: AggregatorRules, *, origins: int, topic: str) -> None:
        super().__init__(origins=origins, topic=topic, limit=rules.limit)
        self._rules = rules
        self._closed = self._reopened = self._firsts = self._revisions = 0
        """Windows and results, as `tuples`."""
        self._fact = aggregate_type(aggregate.name for aggregate in rules.aggregates)

    def _no_windows(self) -> Windows:
        rules = self._rules
        return Windows(rules.columns, rules.window_ms, rules.keep_closed_ms, updates=rules.updates)

    def missing(self, batch: Batch) -> set[int]:
        """Name closed windows that the batch belongs to: they must be given back by `reopen` before it is processed."""
        mine = self._inputs.get(batch.partition)
        if mine is None or mine.windows.closed_to is None:
            return set()
        missing: set[int] = set()
        for value, headers in zip(batch.values, batch.headers, strict=True):
            with suppress(BadRecordError):  # `process` will say so
                if schema_of(headers) == PARTIALS:
                    missing |= mine.windows.missing(self._read(value)["pane"].to_numpy())
        return missing

    def _read(self, value: bytes | None) -> pa.Table:
        return read_partials(value, ("pane", "key", "count", *(column.name for column in self._rules.columns)))

    def reopen(self, partition: int, state: Sequence[tuple[bytes, bytes]]) -> None:
        """Take back closed windows from their chunks."""
        for window, chunks in chunks_by_window(state).items():
            tables = {number: read_table(value) for number, value in chunks.items()}
            self._reopened += self._inputs[partition].windows.reopen(window, tables)

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
                    yield from dead_letter_rows(self._topic, batch, index, refused, FORGOTTEN)

    def _take_in(self, mine: Input, value: bytes | None, headers: Headers) -> pa.Table | None:
        partials = self._read(value) if expect(headers, PARTIALS, PROGRESS) == PARTIALS else None
        self._hear(mine, headers, partials)
        return None if partials is None else self._merge(mine, partials)

    def flush(self, now: int) -> Iterable[Output]:  # noqa: ARG002 - event time only
        """Write what changed to the changelog, and emit what is due."""
        self._absorb()
        for partition, mine in self._inputs.items():
            watermark = mine.marks.watermark()
            mine.ended = watermark == END_OF_TIME
            opened = mine.windows.open
            for part in mine.windows.flush(mine.windows.end if mine.ended else watermark):
                if isinstance(part, Chunk):
                    yield chunk_output("windows", partition, part)
                else:
                    yield from self._results(partition, part)
            self._closed += opened - mine.windows.open

    def _results(self, partition: int, emission: Emission) -> Iterator[Output]:
        """One record per key: public topics carry one fact each, so this is per-record work."""
        rules, window = self._rules, emission.window
        size = len(emission.keys)
        revisions = int(np.count_nonzero(emission.data["revision"]))
        self._firsts += size - revisions
        self._revisions += revisions
        starts, ends = itertools.repeat(window, size), itertools.repeat(window + rules.window_ms, size)
        results = [scaled(aggregate, emission.data, rules.decimals) for aggregate in rules.aggregates]
        numbers = (values_of(column) for column in (*results, emission.data["revision"]))
        encode, fact = msgspec.json.Encoder().encode, self._fact
        prefix, timestamp = f"{window}/".encode(), fact_timestamp(window)
        for row in zip(values_of(emission.keys), starts, ends, *numbers, strict=True):
            yield Output("aggregates", encode(fact(*row)), prefix + row[0].encode(), partition, timestamp)

    def samples(self) -> Iterator[Sample]:
        """Tell what is held, and what became of it."""
        yield from super().samples()
        held = list(self._held())
        yield Sample("skewless_aggregator_open_windows", (), sum(windows.open for windows in held))
        yield Sample("skewless_aggregator_keys", (), sum(map(len, held)))
        yield Sample("skewless_aggregator_closed_windows_total", (), self._closed)
        yield Sample("skewless_aggregator_reopened_windows_total", (), self._reopened)
        yield Sample("skewless_aggregator_results_total", ("first",), self._firsts)
        yield Sample("skewless_aggregator_results_total", ("revision",), self._revisions)


def values_of(column: Results | pa.Array) -> Iterator[Any]:
    """Make Python's values of a column, some at a time: all at once they weigh four times the column."""
    for first in range(0, len(column), ROWS):
        yield from column[first : first + ROWS].tolist()


def scaled(aggregate: Aggregate, data: Mapping[str, NDArray[np.int64]], decimals: int) -> Results:
    """Make the results that are told of fixed-point partial columns: numbers in the unit of the source."""
    result = aggregate.result(data)
    return result if not decimals or aggregate.name == "count" else result / 10**decimals
