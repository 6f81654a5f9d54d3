"""Step of the router: a grouping distributes the tuples of source partitions over the worker partitions.

It treats a row in which the splitter has aggregated tuples as one tuple, because it is as much work for a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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
    headers_with,
    newest_read_time,
    read_time_header,
    report_of,
    require_schema,
    schema_header,
    watermark_records,
)
from skewless.wire.record import Batch, OutputRecord, OwnHeaders
from skewless.wire.rows import ROWS, RowFormat
from skewless.wire.tuples import TupleFormat

NO_TIME = np.iinfo(np.int64).min


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
    ) -> None:
        self._tuples = tuple_format
        self._rows = row_format
        self._grouping = grouping
        self._max_workers = max_workers
        self._encoding = encoding
        self._topic = topic
        self._snapshot_ms = snapshot_ms
        self._last_snapshot_at: int | None = None
        self._last_snapshot_tuples = 0
        """Value of `tuples` at the last snapshot."""
        self._has_read_snapshot = False
        self.workers = grouping.workers
        self._new_upstream = new_upstream
        self._upstreams: dict[int, Upstream] = {}
        self._last_forwarded: dict[int, WatermarkState] = {}
        self._max_times: dict[int, int] = {}
        self._metrics = RouterMetrics(grouping, max_workers)
        self._report = report
        self._reported_keys: set[str] = set()

    @property
    def is_cold(self) -> bool:
        """Whether the router has routed no tuples and has not found saved loads."""
        return self.tuples == 0 and not self._has_read_snapshot

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Restore the watermark, which the first flush reports again. A cold router also restores the loads."""
        self._upstreams[partition] = self._new_upstream(partition, checkpoint)
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

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:
        """Route the tuples of all records of the batch at once, and then the rows."""
        tuple_batches: list[pa.RecordBatch] = []
        row_tables: list[pa.Table] = []
        upstream = self._upstreams[batch.partition]
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                update_upstream = upstream.update_of(headers)
                schema = require_schema(headers, self._tuples.columns_name, ROWS, WATERMARK)
                if schema == ROWS:
                    row_tables += [rows for rows in (self._rows.read(value, headers),) if rows.num_rows]
                elif schema != WATERMARK:
                    tuple_batches += [tuples for tuples in self._tuples.read(value) if tuples.num_rows]
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)
            else:
                update_upstream()
        states, read_time = {batch.partition: upstream.state}, read_time_header(newest_read_time(batch.headers))
        if tuple_batches:
            # The watermark holds after all records of the batch, so a worker must not receive it before the rows.
            own_headers = [*headers_with(self._tuples.columns_name, {} if row_tables else states), *read_time]
            yield from self._route(batch.partition, tuple_batches, own_headers, now)
        if row_tables:
            yield from self._route_rows(batch.partition, row_tables, [*report_of(states), *read_time], now)

    def _route(
        self, partition: int, tuple_batches: Sequence[pa.RecordBatch], headers: OwnHeaders, now: int
    ) -> Iterator[OutputRecord]:
        tuples = pa.Table.from_batches(tuple_batches).unify_dictionaries().combine_chunks()
        key_batch, workers = self._assign_workers(partition, tuples, "time", now)
        self.tuples += len(workers)
        if self._encoding == "record":
            for worker, count in enumerate(np.bincount(workers).tolist()):
                self._metrics.count(worker, count, count)
            yield from self._as_single_records(workers, key_batch, tuples)
            return
        for worker, worker_tuples in by_worker(workers, tuples):
            self._metrics.count(worker, worker_tuples.num_rows, worker_tuples.num_rows)
            yield from self._tuples.records("worker-input", worker, worker_tuples, headers)

    def _route_rows(
        self, partition: int, tables: Sequence[pa.Table], headers: OwnHeaders, now: int
    ) -> Iterator[OutputRecord]:
        rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        _, workers = self._assign_workers(partition, rows, "pane", now)
        for worker, worker_rows in by_worker(workers, rows):
            tuples = int(worker_rows[LOAD_COLUMN.name].to_numpy().sum())
            self.tuples += tuples
            self._metrics.count(worker, worker_rows.num_rows, tuples)
            yield from self._rows.records("worker-input", worker, worker_rows, headers)

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
        fields = zip(*(column.to_pylist() for column in tuples.columns[1:]), strict=True)
        for worker, code, row in zip(workers.tolist(), key_batch.codes.tolist(), fields, strict=True):
            yield OutputRecord("worker-input", encode(record_type(*row)), keys[code], worker, headers=headers)

    def flush(self, now: int) -> Iterator[OutputRecord]:
        """Save the loads if a snapshot is due, and report changed watermarks to every worker partition."""
        self._metrics.update(now)
        if self._is_snapshot_due(now):
            self._report_hot_keys()
            if snapshot := router_state.write(self._grouping, min(self._upstreams)):
                yield snapshot
        changed = {
            partition: state
            for partition, upstream in self._upstreams.items()
            if (state := upstream.state) not in (NOTHING_REPORTED, self._last_forwarded[partition])
        }
        self._last_forwarded |= changed
        if changed:
            yield from watermark_records("worker-input", range(self._max_workers), changed)

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
        return self._last_forwarded[partition].watermark == MAX_WATERMARK
