"""Tuples of a source partition are spread over the worker partitions by a grouping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.grouping import Grouping, KeyBatch
from skewless.algorithms.watermark import END_OF_TIME, NOTHING_REPORTED, WatermarkState
from skewless.errors import BadRecordError
from skewless.public_records import PlainTuple
from skewless.records import (
    PROGRESS,
    TUPLE,
    TUPLES,
    Batch,
    Output,
    dead_letter,
    expect,
    headers_of,
    headers_with,
    progress,
    read_tuples,
    state_after,
    tuple_records,
    tuples_of,
)
from skewless.router import loads
from skewless.router.shown import Shown
from skewless.router.spread import by_worker
from skewless.step import Sample, Step

NO_TIME = np.iinfo(np.int64).min


class RouterStep(Step):
    """Chooses a worker for every tuple. Its loads are local and a hint: any worker gives the right result.

    Every `snapshot_ms` of `now` a commit has the loads in it, at the lowest partition that is owned. A process that has
    not yet chosen goes on with those that it finds there. One that has keeps its own, whatever partitions come, go, or
    are read again: they tell what it sent itself.
    """

    def __init__(self, grouping: Grouping, *, max_workers: int, encoding: str, topic: str, snapshot_ms: int) -> None:
        self._grouping = grouping
        self._max_workers = max_workers
        self._encoding = encoding
        self._topic = topic
        self._snapshot_ms = snapshot_ms
        self._snapshot_at: int | None = None
        self._snapshot_tuples = 0
        self._found_loads = False
        self.workers = grouping.workers
        self._states: dict[int, WatermarkState] = {}
        self._told: dict[int, WatermarkState] = {}
        self._newest: dict[int, int] = {}
        self._shown = Shown(grouping, max_workers)

    @property
    def fresh(self) -> bool:
        """Whether it has no loads yet, so that it can take over some."""
        return self.tuples == 0 and not self._found_loads

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> str | None:
        """Continue from the committed state, which the first flush reports again; and with the loads, if fresh."""
        self._states[partition] = msgspec.json.decode(position, type=WatermarkState) if position else NOTHING_REPORTED
        self._told[partition] = NOTHING_REPORTED
        if not self.fresh:
            return None
        told = loads.restore(self._grouping, state, self._max_workers)
        self._found_loads = told is not None
        self.resize(self.workers)
        self._shown.begin_again()
        return told

    def resize(self, workers: int) -> None:
        """Choose among this many workers from now on; the others get no more tuples, but hear of the time as before."""
        if self._grouping.workers != workers:
            self._grouping.resize(workers)
            self._shown.begin_again()
        self.workers = workers

    def revoke(self, partition: int) -> None:
        """Forget the partition's mark."""
        self._states.pop(partition, None)
        self._told.pop(partition, None)
        self._newest.pop(partition, None)

    def process(self, batch: Batch, now: int) -> Iterator[Output]:
        """Route the tuples of all records of the batch at once."""
        columns: list[pa.RecordBatch] = []
        for index, (value, headers) in enumerate(zip(batch.values, batch.headers, strict=True)):
            try:
                state = state_after(headers, batch.partition, self._states[batch.partition])
                if expect(headers, TUPLES, PROGRESS) == TUPLES:
                    columns += [part for part in read_tuples(value) if part.num_rows]
            except BadRecordError as error:
                yield dead_letter(self._topic, batch, index, error.reason)
            else:
                self._states[batch.partition] = state
        if columns:
            yield from self._route(batch.partition, columns, now)

    def _route(self, partition: int, columns: Sequence[pa.RecordBatch], now: int) -> Iterator[Output]:
        tuples = pa.Table.from_batches(columns).unify_dictionaries()
        keys = tuples["key"].combine_chunks()
        values, times = tuples["value"].to_numpy(), tuples["time"].to_numpy()
        chosen = KeyBatch(keys.dictionary.to_pylist(), keys.indices.to_numpy(), times)
        workers = self._grouping.assign(chosen, now)
        self.tuples += len(workers)
        self._newest[partition] = max(int(times.max()), self._newest.get(partition, NO_TIME))
        headers = headers_with(TUPLES, {partition: self._states[partition]})
        sent = self._shown.sent
        if self._encoding == "record":
            for worker, count in enumerate(np.bincount(workers).tolist()):
                sent[worker] += count
            yield from _one_by_one(workers, chosen, values)
            return
        for worker, *columns_of_worker in by_worker(workers, keys, values, times):
            sent[worker] += len(columns_of_worker[0])
            yield from tuple_records("worker-input", worker, tuples_of(*columns_of_worker), headers)

    def flush(self, now: int) -> Iterator[Output]:
        """Tell every worker partition how far each source partition has come, if one has moved; save the loads."""
        self._shown.look(now)
        if self._snapshot_is_due(now) and (saved := loads.write(self._grouping, min(self._states))):
            yield saved
        moved = {
            partition: state
            for partition, state in self._states.items()
            if state not in (NOTHING_REPORTED, self._told[partition])
        }
        self._told |= moved
        if moved:
            yield from progress("worker-input", range(self._max_workers), moved)

    def _snapshot_is_due(self, now: int) -> bool:
        if self._snapshot_at is not None and 0 <= now - self._snapshot_at < self._snapshot_ms:
            return False
        changed = bool(self._states) and self.tuples != self._snapshot_tuples
        if changed:
            self._snapshot_at, self._snapshot_tuples = now, self.tuples
        return changed

    def position(self, partition: int) -> str:
        """Save the partition's watermark, and whether it is idle."""
        return msgspec.json.encode(self._states[partition]).decode()

    def watermark(self, partition: int) -> int | None:
        """Tell the mark of the source partition of the same number."""
        return self._states[partition].watermark

    def idle(self, partition: int) -> bool:
        """Return whether the source partition of the same number is idle."""
        return self._states[partition].idle

    def event_time(self, partition: int) -> int | None:
        """Newest time of its tuples."""
        return self._newest.get(partition)

    def samples(self) -> Iterator[Sample]:
        """Tell how even the load is, and what the grouping knows."""
        return self._shown.samples()

    def finished(self, partition: int) -> bool:
        """Whether every worker was told of the end of the partition."""
        return self._told[partition].watermark == END_OF_TIME


def _one_by_one(workers: NDArray[np.int32], chosen: KeyBatch, values: NDArray[np.int64]) -> Iterator[Output]:
    """One record per tuple, for consumers of the user's own: per-record work is what was asked for.

    The event time is in the value alone. As the record's timestamp it would make the topic's retention delete a stream
    of last year before anybody has read it.
    """
    keys = [key.encode() for key in chosen.keys]
    headers = headers_of(TUPLE, {})
    encode = msgspec.json.encode
    rows = zip(workers.tolist(), chosen.codes.tolist(), values.tolist(), chosen.times.tolist(), strict=True)
    for worker, code, value, time in rows:
        yield Output("worker-input", encode(PlainTuple(value, time)), keys[code], worker, headers=headers)
