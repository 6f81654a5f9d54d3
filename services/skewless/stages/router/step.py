"""Step of the router: a grouping distributes the tuples of source partitions over the worker partitions.

It treats a row in which the splitter has aggregated tuples as one tuple, because it is as much work for a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import LOAD_COLUMN
from skewless.algorithms.grouping import Grouping, KeyBatch
from skewless.algorithms.watermark import MAX_WATERMARK, NOTHING_REPORTED, WatermarkState
from skewless.engine.step import TOP_KEYS, Sample, Step
from skewless.errors import BadRecordError
from skewless.stages.router import state as router_state
from skewless.stages.router.by_worker import by_worker
from skewless.stages.router.metrics import RouterMetrics
from skewless.stages.router.upstream import Upstream
from skewless.wire.dead_letters import dead_letter
from skewless.wire.headers import (
    WATERMARK,
    newest_read_time,
    read_time_header,
    report_of,
    require_schema,
    schema_header,
    watermark_records,
)
from skewless.wire.record import Batch, OutputRecord
from skewless.wire.rows import ROWS, RowFormat
from skewless.wire.tuples import TupleFormat

NO_TIME = np.iinfo(np.int64).min
HELD_ROWS = 65_536
"""Number of routed tuples and rows above which they are sent before the flush. Records with the tuples of several
source partitions take fewer bytes, because they contain each key once."""
HELD_BYTES = 4 * 2**20
"""Bytes of their records above which they are sent. This limit matters for long keys."""
Routed = tuple[NDArray[np.int32], pa.Table]
"""Tuples or rows with the worker of each of them."""


@dataclass(slots=True)
class _Held:
    """Routed tuples and rows of a partition that are not sent."""

    tuples: list[Routed] = field(default_factory=list)
    row_tables: list[Routed] = field(default_factory=list)
    read_time: int = 0
    """Newest read time in ms; 0 without one."""
    bytes: int = 0
    """Bytes of their records."""

    @property
    def rows(self) -> int:
        """Number of tuples and rows."""
        return sum(len(workers) for workers, _ in (*self.tuples, *self.row_tables))


class RouterStep(Step):
    """Chooses a worker for each tuple. The loads are local to the process and a hint: results do not depend on them.

    Every `snapshot_ms` milliseconds, a commit saves the loads to the lowest assigned partition. A process that has not
    routed any tuples restores the loads that it finds there. After that it keeps its own loads through rebalances and
    aborts, because they describe the tuples that it has sent.
    """

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        grouping: Grouping,
        tuple_format: TupleFormat,
        row_format: RowFormat,
        *,
        max_workers: int,
        encoding: str,
        topic: str,
        snapshot_ms: int,
        new_upstream: Callable[[int, str | None], Upstream],
        report: Callable[[str], None] = lambda _line: None,
        warn: Callable[[str], None] = lambda _line: None,
        holds: bool = True,
    ) -> None:
        """Start without partitions. `holds`: whether tuples wait for the flush, which pays with transactions only."""
        self._tuples = tuple_format
        self._rows = row_format
        self._grouping = grouping
        self._max_workers = max_workers
        self._encoding = encoding
        self._topic = topic
        self._snapshot_ms = snapshot_ms
        self._holds = holds
        self._last_snapshot_at: int | None = None
        self._last_snapshot_tuples = 0
        """Value of `tuples` at the last snapshot."""
        self._has_read_snapshot = False
        self.workers = grouping.workers
        self._new_upstream = new_upstream
        self._upstreams: dict[int, Upstream] = {}
        self._last_forwarded: dict[int, WatermarkState] = {}
        self._max_times: dict[int, int] = {}
        self._held: dict[int, _Held] = {}
        """Routed tuples and rows that are not sent, by partition."""
        self._metrics = RouterMetrics(grouping, max_workers)
        self._report = report
        self._warn = warn
        self._has_warned = False
        self._reported_keys: set[str] = set()

    @property
    def is_cold(self) -> bool:
        """Whether the router has routed no tuples and has not found saved loads."""
        return self.tuples == 0 and not self._has_read_snapshot

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Restore the watermark, which the first flush reports again. A cold router also restores the loads."""
        self._upstreams[partition] = upstream = self._new_upstream(partition, checkpoint)
        upstream.restart()
        self._last_forwarded[partition] = NOTHING_REPORTED
        if not self.is_cold:
            return None
        message = router_state.restore(self._grouping, state, self._max_workers)
        self._has_read_snapshot = message is not None
        self.set_workers(self.workers)
        self._metrics.reset()
        return message

    def set_workers(self, workers: int) -> None:
        """Route to this many workers from now on. The others receive no tuples, but still receive watermarks."""
        if self._grouping.workers != workers:
            self._grouping.resize(workers)
            self._metrics.reset()
        self.workers = workers

    def revoke(self, partition: int) -> None:
        """Drop the watermarks of the partition."""
        self._upstreams.pop(partition, None)
        self._last_forwarded.pop(partition, None)
        self._max_times.pop(partition, None)
        self._held.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Route the tuples of all records of the batch at once, and then the rows. They are held until the flush."""
        tuple_batches: list[pa.RecordBatch] = []
        row_tables: list[pa.Table] = []
        upstream = self._upstreams[batch.partition]
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                update_upstream = upstream.update_of(headers)
                schema = require_schema(headers, *self._tuples.columns_names, ROWS, WATERMARK)
                if schema == ROWS:
                    row_tables += [rows for rows in (self._rows.read(value, headers),) if rows.num_rows]
                elif schema != WATERMARK:
                    tuple_batches += [tuples for tuples in self._tuples.read(value) if tuples.num_rows]
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)
            else:
                update_upstream()
        held = self._held.setdefault(batch.partition, _Held())
        held.read_time = max(newest_read_time(batch.headers) or 0, held.read_time)
        held.bytes += batch.size
        if tuple_batches:
            yield from self._route(batch.partition, tuple_batches, now)
        if row_tables:
            self._route_rows(batch.partition, row_tables, now)
        if self._is_full():
            yield from self.held_records()

    def _route(self, partition: int, tuple_batches: Sequence[pa.RecordBatch], now: int) -> Iterator[OutputRecord]:
        tuples = _one_chunk(pa.Table.from_batches(tuple_batches))
        key_batch, workers = self._assign_workers(partition, tuples, "time", now)
        self._count(workers, np.bincount(workers))
        if self._encoding == "record":
            yield from self._as_single_records(workers, key_batch, tuples)
        else:
            self._held[partition].tuples.append((workers, tuples))

    def _route_rows(self, partition: int, tables: Sequence[pa.Table], now: int) -> None:
        rows = _one_chunk(pa.concat_tables(tables))
        _, workers = self._assign_workers(partition, rows, "pane", now)
        tuples_by_worker = np.zeros(int(workers.max()) + 1, dtype=np.int64)
        np.add.at(tuples_by_worker, workers, rows[LOAD_COLUMN.name].to_numpy())
        self._count(workers, tuples_by_worker)
        self._held[partition].row_tables.append((workers, rows))

    def _count(self, workers: NDArray[np.int32], tuples_by_worker: NDArray[np.int64]) -> None:
        self.tuples += int(tuples_by_worker.sum())
        counts = zip(np.bincount(workers).tolist(), tuples_by_worker.tolist(), strict=True)
        for worker, (rows, tuples) in enumerate(counts):
            if rows:
                self._metrics.count(worker, rows, tuples)

    def _is_full(self) -> bool:
        held = self._held.values()
        if not self._holds:
            return True
        return sum(each.rows for each in held) > HELD_ROWS or sum(each.bytes for each in held) > HELD_BYTES

    def held_records(self, states: Mapping[int, WatermarkState] = MappingProxyType({})) -> Iterator[OutputRecord]:
        """Yield what is held as records of each worker, and these states of upstream partitions for every worker."""
        held, self._held = list(self._held.values()), {}
        read_time = read_time_header(max((each.read_time for each in held), default=0) or None)
        tuples = dict(_by_worker([part for each in held for part in each.tuples]))
        rows = dict(_by_worker([part for each in held for part in each.row_tables]))
        for worker in sorted(tuples.keys() | rows.keys()):
            # The watermarks hold after all records, so only the last record of a worker contains them.
            report = [*report_of(states), *read_time]
            if worker in tuples:
                own_report = report if worker not in rows else read_time
                headers = [schema_header(self._tuples.columns_name), *own_report]
                yield from self._tuples.records("worker-input", worker, tuples[worker], headers)
            if worker in rows:
                yield from self._rows.records("worker-input", worker, rows[worker], report)
        if states:
            others = [worker for worker in range(self._max_workers) if worker not in tuples and worker not in rows]
            yield from watermark_records("worker-input", others, states)

    def _assign_workers(
        self, partition: int, items: pa.Table, time: str, now: int
    ) -> tuple[KeyBatch, NDArray[np.int32]]:
        """Return the keys of tuples or rows, and the worker of each of them. `time` is the column of event times."""
        keys, times = items["key"].chunk(0), items[time].chunk(0).to_numpy()
        self._max_times[partition] = max(int(times.max()), self._max_times.get(partition, NO_TIME))
        key_batch = KeyBatch(keys.dictionary.to_pylist(), keys.indices.to_numpy(), times)
        return key_batch, self._grouping.assign(key_batch, now)

    def _as_single_records(
        self, workers: NDArray[np.int32], key_batch: KeyBatch, tuples: pa.Table
    ) -> Iterator[OutputRecord]:
        """Yield one JSON record per tuple, for other consumers (`worker_input.encoding: record`)."""
        # The event time is not the record's timestamp: retention by time would delete the tuples of an old recording
        # before they are read.
        keys = [key.encode() for key in key_batch.keys]
        headers = [schema_header(self._tuples.record_name)]
        encode, record_type = msgspec.json.encode, self._tuples.record_type
        # Arrow converts texts without their dictionary 30 times as fast.
        types = ((field.name, getattr(field.type, "value_type", field.type)) for field in tuples.schema)
        fields = zip(*(column.to_pylist() for column in tuples.cast(pa.schema(types)).columns[1:]), strict=True)
        for worker, code, row in zip(workers.tolist(), key_batch.codes.tolist(), fields, strict=True):
            yield OutputRecord("worker-input", encode(record_type(*row)), keys[code], worker, headers=headers)

    def flush(self, now: int) -> Iterator[OutputRecord]:
        """Save the loads if a snapshot is due. Send what is held, and changed watermarks to every worker partition."""
        self._metrics.update(now)
        if self._is_snapshot_due(now):
            self._report_hot_keys()
            if snapshot := router_state.write(self._grouping, min(self._upstreams)):
                yield snapshot
            elif not self._has_warned:
                self._warn(router_state.excess(self._grouping))
                self._has_warned = True
        changed = {
            partition: state
            for partition, upstream in self._upstreams.items()
            if (state := upstream.state) not in (NOTHING_REPORTED, self._last_forwarded[partition])
        }
        self._last_forwarded |= changed
        yield from self.held_records(changed)

    def _report_hot_keys(self) -> None:
        """Report the hottest keys by name, if other keys are hot than in the last report."""
        found = self._grouping.hot_keys(TOP_KEYS)
        if (names := {hot.key for hot in found}) != self._reported_keys:
            listed = (f"{hot.key!r} ({hot.tuples:,} tuples, workers: {hot.workers})" for hot in found)
            self._report(f"hot keys: {', '.join(listed) or 'none'}")
            self._reported_keys = names

    def _is_snapshot_due(self, now: int) -> bool:
        """Return whether the loads must be saved now. Records the time of the snapshot if so."""
        if self._last_snapshot_at is not None and 0 <= now - self._last_snapshot_at < self._snapshot_ms:
            return False
        has_changed = bool(self._upstreams) and self.tuples != self._last_snapshot_tuples
        if has_changed:
            self._last_snapshot_at, self._last_snapshot_tuples = now, self.tuples
        return has_changed

    def checkpoint(self, partition: int) -> str:
        """Return the checkpoint: watermarks of source partitions, and which of them are idle."""
        return self._upstreams[partition].checkpoint()

    def watermark(self, partition: int) -> int | None:
        """Return the combined watermark of the source partitions."""
        return self._upstreams[partition].state.watermark

    def idle(self, partition: int) -> bool:
        """Return whether all source partitions are idle."""
        return self._upstreams[partition].state.idle

    def max_event_time(self, partition: int) -> int | None:
        """Return the largest event time of the partition's tuples in ms. None before the first."""
        return self._max_times.get(partition)

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the metrics of the load and of the grouping."""
        return self._metrics.collect_metrics()

    def finished(self, partition: int) -> bool:
        """Return whether the end of the partition was reported to every worker partition."""
        state = self._upstreams[partition].state
        return state.watermark == MAX_WATERMARK and state == self._last_forwarded[partition]


def _one_chunk(table: pa.Table) -> pa.Table:
    return table.unify_dictionaries().combine_chunks()


def _by_worker(parts: Sequence[Routed]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (worker, tuples or rows) by ascending worker."""
    if parts:
        table = parts[0][1] if len(parts) == 1 else _one_chunk(pa.concat_tables(table for _, table in parts))
        yield from by_worker(np.concatenate([workers for workers, _ in parts]), table)
