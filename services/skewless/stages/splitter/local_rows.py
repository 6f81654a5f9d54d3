"""Local aggregation in a splitter: the buffers of its source partitions, the records of their rows, and its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

import pyarrow as pa

from skewless.algorithms.local_buffer import LocalBuffer, LocalRules
from skewless.algorithms.watermark import WatermarkState
from skewless.engine.step import Sample
from skewless.wire.record import OutputRecord
from skewless.wire.rows import RowFormat

Cause = Literal["commit", "size"]
CAUSES: tuple[Cause, ...] = get_args(Cause)


class LocalRows:
    """Aggregates tuples in buffers, one for each source partition."""

    def __init__(self, rules: LocalRules, row_format: RowFormat) -> None:
        self._rules = rules
        self._format = row_format
        self._buffers: dict[int, LocalBuffer] = {}
        self._tuples = self._rows = 0
        """Tuples and rows that were flushed since the process started, for the metrics."""
        self._flushes: Counter[Cause] = Counter(dict.fromkeys(CAUSES, 0))

    def assign(self, partition: int) -> None:
        """Start a partition with an empty buffer."""
        self._buffers[partition] = LocalBuffer(self._rules)

    def revoke(self, partition: int) -> None:
        """Drop the tuples of a partition, which are not committed."""
        self._buffers.pop(partition, None)

    def add(self, partition: int, tuples: pa.RecordBatch) -> bool:
        """Add tuples to the buffer of a partition. Returns False if they must be sent as they are."""
        return self._buffers[partition].add(tuples)

    def is_full(self, partition: int) -> bool:
        """Return whether the buffer of a partition must be flushed now."""
        return self._buffers[partition].is_full

    def has_rows(self, partition: int) -> bool:
        """Return whether the buffer of a partition is not empty."""
        return len(self._buffers[partition]) > 0

    def flush(self, partition: int, state: WatermarkState, cause: Cause) -> Iterator[OutputRecord]:
        """Yield the rows of a partition, and empty its buffer. `state` is that of the partition after its tuples."""
        flushed = self._buffers[partition].take()
        self._tuples += flushed.tuples
        self._rows += flushed.rows.num_rows
        self._flushes[cause] += 1
        rows = self._format.from_partials(flushed.rows)
        yield from self._format.records("tuples", partition, rows, {partition: state})

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield what was aggregated, and the state of the buffers."""
        yield Sample("skewless_splitter_local_tuples_total", (), self._tuples)
        yield Sample("skewless_splitter_local_rows_total", (), self._rows)
        yield Sample("skewless_splitter_local_buffer_rows", (), sum(map(len, self._buffers.values())))
        for cause, flushes in self._flushes.items():
            yield Sample("skewless_splitter_local_flushes_total", (cause,), flushes)
        for partition, buffer in self._buffers.items():
            yield Sample("skewless_splitter_local_active", (str(partition),), int(buffer.active))


def metrics_without_aggregation(partitions: Iterable[int]) -> Iterator[Sample]:
    """Yield the metrics of a splitter that sends each tuple: zeros, so that no dashboard lacks a series."""
    for name in ("tuples_total", "rows_total", "buffer_rows"):
        yield Sample(f"skewless_splitter_local_{name}", (), 0)
    for cause in CAUSES:
        yield Sample("skewless_splitter_local_flushes_total", (cause,), 0)
    for partition in partitions:
        yield Sample("skewless_splitter_local_active", (str(partition),), 0)
