"""Tasks of a micro-batch of `skewless stream`. They run the steps of the stages, without Spark and without Kafka.

A `SplitTask` reads the records of source partitions as splitter and worker do: records in, partials out. Where each
tuple costs time, it chooses a worker for each tuple as the router does, and a `WorkTask` per worker aggregates them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.errors import SkewlessError
from skewless.spark.record_columns import header_columns
from skewless.spark.stream_windows import step_of
from skewless.stages.router.step import RouterStep
from skewless.stages.splitter.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from skewless.stages.splitter.step import SplitterStep
from skewless.stages.worker.step import WorkerStep
from skewless.wire.dead_letters import dead_letter
from skewless.wire.headers import schema_header
from skewless.wire.record import Headers, OutputRecord, OwnHeaders
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.tuples import TupleFormat

TUPLES, PARTIALS, RECORDS, PROGRESS, WORK = "tuples", "partials", "records", "progress", "work"
"""Kinds of rows. A block of `tuples` or `partials` is the value of a record of topic `worker-input` or `partials`, one
of `records` has late tuples and dead letters. `partition` is the worker of `tuples`, and otherwise the partition of
`aggregates` whose task gets the block. `progress` is a `SourceProgress`, `work` is a `WorkProgress`."""
ROWS = "kind string, partition int, block binary"
RECORDS_PER_BLOCK = 5_000
OUTSIDE_RECORDS = (SkewlessError, MemoryError, OSError)
"""Errors that are not caused by a single record."""


class SourceProgress(msgspec.Struct):
    """What a task has read of a source partition."""

    topic: str
    partition: int
    records: int = 0
    next_offset: int = 0
    max_time: int | None = None
    """Largest event time in ms so far, also of earlier micro-batches."""
    newest_ms: int = 0
    """Kafka timestamp of the last record in ms."""
    tuples: int = 0
    late: int = 0
    dead_letters: int = 0
    now: int = 0
    """Wall-clock time of the micro-batch in ms."""
    seconds: float = 0.0
    """Time that the task spent."""


class WorkProgress(msgspec.Struct):
    """What the task of a worker has done."""

    tuples: int = 0
    seconds: float = 0.0
    """Time that the task spent, with the simulated cost."""


@dataclass(slots=True)
class SourceBatch:
    """Records of a source partition in Spark's columns. Implements `Batch`."""

    topic: str
    partition: int
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    offsets: Sequence[int]
    timestamps: NDArray[np.int64]
    headers: Sequence[Headers]

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(map(len, filter(None, self.values)))

    def part(self, rows: slice) -> SourceBatch:
        """Return some of the records."""
        columns = (self.values, self.keys, self.offsets, self.timestamps, self.headers)
        return SourceBatch(self.topic, self.partition, *(column[rows] for column in columns))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class SplitTask:
    """Reads the records of a micro-batch as partials. Spark sends it to the tasks.

    A task reads whole ranges of source partitions in the order of their offsets, so lateness is final.
    """

    settings: PipelineSettings
    partition_counts: Mapping[str, int]
    """Number of partitions of the source topics and of `tuples`, by full name."""
    max_times: Mapping[TopicPartition, int | None]
    """Largest event time before the micro-batch, of all source partitions."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `ROWS`. Columns: topic, partition, offset, timestamp, key, value, now, and headers if they are read."""
        reader: _SourceReader | None = None
        for batch in batches:
            for part in _by_partition(batch):
                reader = reader or _SourceReader(self, part["now"][0].as_py())
                yield from reader.add(part)
        if reader is not None:
            yield from reader.finish()


def _by_partition(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch where the source partition changes."""
    topics, partitions = batch["topic"].dictionary_encode().indices.to_numpy(), batch["partition"].to_numpy()
    cuts = np.flatnonzero((np.diff(topics) != 0) | (np.diff(partitions) != 0)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), batch.num_rows], strict=True):
        if end > start:
            yield batch.slice(start, end - start)


@dataclass(slots=True)
class _Rows:
    """Rows that a task has not yet yielded."""

    kinds: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)

    def add(self, kind: str, partition: int, block: bytes) -> None:
        self.kinds.append(kind)
        self.partitions.append(partition)
        self.blocks.append(block)

    def add_partials(self, outputs: Iterable[OutputRecord]) -> None:
        for output in outputs:
            if output.value is not None and output.partition is not None:  # a watermark has no value
                self.add(PARTIALS, output.partition, output.value)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and drop them."""
        if self.kinds:
            columns = [pa.array(self.kinds), pa.array(self.partitions, pa.int32()), pa.array(self.blocks, pa.binary())]
            yield pa.record_batch(columns, ["kind", "partition", "block"])
        self.kinds, self.partitions, self.blocks = [], [], []


class _SourceReader:
    """Reads the source partitions of one task, one after the other."""

    def __init__(self, task: SplitTask, now: int) -> None:
        self._now = now
        self._max_times = task.max_times
        self._numbers = {source: number for number, source in enumerate(sorted(task.max_times))}
        self._targets = task.settings.topics.aggregator_partitions
        counts, tuples = dict(task.partition_counts), task.settings.topic("tuples")
        self._splitter = step_of("splitter", task.settings, counts, SplitterStep)
        self._splitter.observe_topics({topic: count for topic, count in counts.items() if topic != tuples})
        self._worker = step_of("worker", task.settings, counts, WorkerStep)
        self._router: RouterStep | None = None
        if not task.settings.worker.cost.is_free:
            # It starts without loads, so that a repeated task chooses the same workers.
            self._router = step_of("router", task.settings, counts, RouterStep)
        self._schema = _tuples_header(task.settings)
        self._source: TopicPartition | None = None
        self._opened: set[TopicPartition] = set()
        self._number = 0
        self._progress = SourceProgress("", 0)
        self._records: list[OutputRecord] = []
        self._rows = _Rows()

    def add(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Read the next records, all of one source partition."""
        started = time.perf_counter()
        source = TopicPartition(records["topic"][0].as_py(), records["partition"][0].as_py())
        if source != self._source:
            self._close()
            self._open(source)
        batch = SourceBatch(
            *source,
            values=records["value"].to_pylist(),
            keys=records["key"].to_pylist(),
            offsets=records["offset"].to_pylist(),
            timestamps=records["timestamp"].to_numpy(),
            headers=header_columns(records),
        )
        outputs = self._split(batch)
        tuples = [output for output in outputs if output.topic == "tuples"]
        if tuples and self._router is not None:
            self._route(self._router, tuples)
        elif tuples:
            target = TopicPartition("worker-input", self._number)
            deque(self._worker.process(MessageBatch.of_outputs(target, tuples, self._now), self._now), maxlen=0)
        self._add_records([output for output in outputs if output.topic != "tuples"])
        progress = self._progress
        progress.records += records.num_rows
        progress.next_offset, progress.newest_ms = batch.offsets[-1] + 1, int(batch.timestamps[-1])
        if self._worker.wants_commit:
            self._flush()
        progress.seconds += time.perf_counter() - started
        yield from self._rows.take()

    def _route(self, router: RouterStep, tuples: list[OutputRecord]) -> None:
        """Choose a worker for each tuple. The driver knows the watermarks, so the records have none."""
        records = [OutputRecord("tuples", output.value, headers=self._schema) for output in tuples]
        batch = MessageBatch.of_outputs(TopicPartition("tuples", self._number), records, self._now)
        for output in router.process(batch, self._now):
            if output.value is not None and output.partition is not None:
                self._rows.add(TUPLES, output.partition, output.value)

    def _open(self, source: TopicPartition) -> None:
        if source in self._opened:
            raise ValueError(f"the records of {source} are not one range of offsets in this task")
        self._opened.add(source)
        self._source, self._number = source, self._numbers[source]
        self._splitter.assign(source, encode_checkpoint(Checkpoint(self._max_times[source])), ())
        self._worker.assign(self._number, None, ())
        if self._router is not None:
            self._router.assign(self._number, None, ())
        self._progress = SourceProgress(*source, now=self._now)

    def _split(self, batch: SourceBatch) -> list[OutputRecord]:
        """Return tuples, late tuples and dead letters. A record whose parsing fails becomes a dead letter."""
        source = TopicPartition(batch.topic, batch.partition)
        before = self._splitter.checkpoint(source)
        try:
            return list(self._splitter.process(batch, self._now))
        except OUTSIDE_RECORDS:
            raise
        except Exception as error:  # noqa: BLE001 - a format of a package may raise anything
            self._splitter.assign(source, before, ())
            count = len(batch.offsets)
            if count == 1:
                return [dead_letter(batch.topic, batch, 0, f"cannot be processed: {type(error).__name__}: {error}")]
            return [*self._split(batch.part(slice(count // 2))), *self._split(batch.part(slice(count // 2, None)))]

    def _add_records(self, records: list[OutputRecord]) -> None:
        late = sum(record.topic == "late" for record in records)
        self._progress.late += late
        self._progress.dead_letters += len(records) - late
        self._records += records
        if len(self._records) >= RECORDS_PER_BLOCK:
            self._write_records()

    def _write_records(self) -> None:
        if self._records:
            self._rows.add(RECORDS, self._number % self._targets, msgspec.msgpack.encode(self._records))
            self._records = []

    def _flush(self) -> None:
        """Write the partials of all source partitions since the last flush."""
        self._rows.add_partials(self._worker.flush(self._now))

    def _close(self) -> None:
        """End the source partition that is open."""
        if self._source is None:
            return
        self._write_records()
        self._progress.max_time = decode_checkpoint(self._splitter.checkpoint(self._source)).max_time
        self._progress.tuples = self._splitter.tuples
        self._splitter.tuples = 0
        self._rows.add(PROGRESS, 0, msgspec.json.encode(self._progress))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows."""
        started = time.perf_counter()
        self._flush()
        self._progress.seconds += time.perf_counter() - started
        self._close()
        yield from self._rows.take()


@dataclass(frozen=True, slots=True)
class WorkTask:
    """Aggregates the tuples of a worker, after their simulated cost. Spark sends it to the tasks.

    Rows of other kinds pass through.
    """

    settings: PipelineSettings
    partition_counts: Mapping[str, int]
    """As in `SplitTask`."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `ROWS`, and one row of kind WORK if there were tuples. Columns: those of `ROWS`."""
        started = time.perf_counter()
        step = step_of("worker", self.settings, self.partition_counts, WorkerStep)
        header, progress, rows = _tuples_header(self.settings), WorkProgress(), _Rows()
        workers: set[int] = set()
        busy_until = 0.0
        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("kind", "partition", "block"))
            for kind, partition, block in zip(*columns, strict=True):
                if kind != TUPLES:
                    rows.add(kind, partition, block)
                    continue
                if partition not in workers:
                    workers.add(partition)
                    step.assign(partition, None, ())
                records = [OutputRecord("worker-input", block, headers=header)]
                before = step.tuples
                target = TopicPartition("worker-input", partition)
                deque(step.process(MessageBatch.of_outputs(target, records, 0), 0), maxlen=0)
                # Costs add up to one end time, as in a stage.
                busy_until = (busy_until or time.perf_counter()) + self.settings.worker.cost.seconds(
                    step.tuples - before
                )
                time.sleep(max(0.0, busy_until - time.perf_counter()))
                if step.wants_commit:
                    rows.add_partials(step.flush(0))
            yield from rows.take()
        if step.tuples:
            rows.add_partials(step.flush(0))
            progress.tuples, progress.seconds = step.tuples, time.perf_counter() - started
            rows.add(WORK, 0, msgspec.json.encode(progress))
        yield from rows.take()


def _tuples_header(settings: PipelineSettings) -> OwnHeaders:
    return [schema_header(TupleFormat(settings.values).columns_name)]
