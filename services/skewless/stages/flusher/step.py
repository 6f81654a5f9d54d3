"""Step of the flusher: merges partials by window and key until the next transaction adds them to the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from skewless.algorithms.aggregates import LOAD_COLUMN, PartialColumn, ResultField, columns_of
from skewless.algorithms.partials import newest_pane
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkTracker
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.algorithms.windowing.window_deltas import WindowDelta, WindowDeltas
from skewless.engine.step import Sample, Step
from skewless.errors import BadRecordError
from skewless.wire.aggregates import aggregate_constructor, encode_json
from skewless.wire.changelog import WindowCheckpoint, decode_checkpoint, read_watermarks
from skewless.wire.headers import WATERMARK, require_schema, update_watermarks
from skewless.wire.partials import PARTIALS, read_partials
from skewless.wire.record import Batch, Headers, OutputRecord
from skewless.wire.table_rows import refused_record, row

ROWS = 8192
"""Number of rows that are converted to Python objects at once."""


@dataclass(frozen=True, slots=True)
class FlusherRules:
    """Windows, and the numbers to add to them."""

    results: Sequence[ResultField]
    """Results that a database can merge, which are the columns of the table."""
    windows: WindowAssigner
    transaction_rows: int
    """Number of rows after which the step requests a commit."""
    key_parts: Sequence[str] = ()
    """Names of the parts of a composite key."""


@dataclass(slots=True)
class _Input:
    """A partition of partials since the last commit."""

    watermarks: WatermarkTracker
    deltas: WindowDeltas
    refused: list[OutputRecord] = field(default_factory=list)
    next_offset: int = 0
    newest_pane: int | None = None

    @property
    def pending(self) -> int:
        """Number of rows of the next transaction."""
        return len(self.deltas) + len(self.refused)


class FlusherStep(Step):
    """Adds the partials of each assigned partition to windows. Nothing but watermarks is kept after a commit.

    A window has no end here: partials that arrive after the watermark has passed it are added, too.
    `worker_partitions` is the number of partitions of worker-input: each has a watermark in partials.
    """

    stops_for_commit = True

    def __init__(self, rules: FlusherRules, *, worker_partitions: int) -> None:
        self._rules = rules
        self._columns = columns_of(rules.results)
        self._worker_partitions = worker_partitions
        self._inputs: dict[int, _Input] = {}
        self._new_record = aggregate_constructor(rules.results, key_parts=rules.key_parts)

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None:  # noqa: ARG002 - the rows are in the database
        """Restore the watermarks of the last commit."""
        watermarks = read_watermarks(decode_checkpoint(checkpoint), self._worker_partitions)
        watermarks.restart()
        self._inputs[partition] = _Input(watermarks, WindowDeltas(self._columns, self._rules.windows))

    def revoke(self, partition: int) -> None:
        """Drop partials that were not committed."""
        self._inputs.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Sequence[OutputRecord]:  # noqa: ARG002 - event time only
        """Merge the partials of a batch."""
        input_ = self._inputs[batch.partition]
        for offset, key, value, headers in zip(batch.offsets, batch.keys, batch.values, batch.headers, strict=True):
            try:
                self._merge_record(input_, value, headers)
            except BadRecordError as error:
                refused = refused_record(batch.partition, offset, key, value or b"", error.reason)
                input_.refused.append(refused)
            input_.next_offset = offset + 1
        return ()

    def _merge_record(self, input_: _Input, value: bytes | None, headers: Headers) -> None:
        partials = None
        if require_schema(headers, PARTIALS, WATERMARK) == PARTIALS:
            partials = read_partials(value, ("pane", "key"), (LOAD_COLUMN, *self._added_columns))
        update_watermarks(input_.watermarks, headers)
        if partials is not None:
            self.tuples += int(partials[LOAD_COLUMN.name].to_numpy().sum())
            input_.newest_pane = newest_pane(partials, input_.newest_pane)
            input_.deltas.merge(partials)

    @property
    def _added_columns(self) -> Iterator[PartialColumn]:
        return (column for column in self._columns if column != LOAD_COLUMN)

    @property
    def wants_commit(self) -> bool:
        """Whether a transaction has all its rows."""
        return self._pending >= self._rules.transaction_rows

    @property
    def _pending(self) -> int:
        return sum(input_.pending for input_ in self._inputs.values())

    def flush(self, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - event time only
        """Yield the rows of the transaction: what must be added to each row of the table."""
        for partition, input_ in self._inputs.items():
            for delta in input_.deltas.take(ROWS):
                yield from self._rows(partition, input_.next_offset - 1, delta)
            yield from input_.refused
            input_.refused.clear()

    def _rows(self, partition: int, offset: int, delta: WindowDelta) -> Iterator[OutputRecord]:
        bounds = delta.window, self._rules.windows.end(delta.window)
        columns: list[list[Any]] = [result.to_python(delta.data) for result in self._rules.results]
        prefix = f"{delta.window}/".encode()
        for key, results in zip(delta.keys.to_pylist(), zip(*columns, strict=True), strict=True):
            record = self._new_record(key, *bounds, *results, 0)
            yield row(partition, offset, prefix + key.encode(), encode_json(record))

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the number of rows that wait for the next transaction."""
        yield Sample("skewless_sink_pending_rows", (), self._pending)

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint: the watermarks."""
        return msgspec.json.encode(WindowCheckpoint(self._inputs[partition].watermarks.encode())).decode()

    def watermark(self, partition: int) -> int | None:
        """Return the watermark of the partition: the minimum over the worker partitions."""
        return self._inputs[partition].watermarks.watermark()

    def idle(self, partition: int) -> bool:
        """Return whether all worker partitions are idle."""
        return self._inputs[partition].watermarks.state().idle

    def max_event_time(self, partition: int) -> int | None:
        """Return the start of the newest pane in ms."""
        return self._inputs[partition].newest_pane

    def finished(self, partition: int) -> bool:
        """Return whether the input of the partition has ended."""
        return self.watermark(partition) == MAX_WATERMARK
