"""Tasks of a micro-batch of `skewless stream`. They run the steps of the stages, without Spark and without Kafka.

A `SplitTask` processes the records of source partitions as splitter and worker do: records in, partials out. Where
each tuple costs time, it chooses a worker for each tuple as the router does. Then `WorkTask`s aggregate the tuples.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.spark.stream_windows import step_of
from skewless.stages.router.step import RouterStep
from skewless.stages.splitter.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from skewless.stages.splitter.step import SplitterStep
from skewless.stages.worker.step import WorkerStep
from skewless.wire.headers import schema_header
from skewless.wire.record import OutputRecord, OwnHeaders
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.tuples import TupleFormat

TUPLES, PARTIALS, RECORDS, PROGRESS, WORK = "tuples", "partials", "records", "progress", "work"
"""Kinds of rows. A block of `tuples` or `partials` is the value of a record of topic `worker-input` or `partials`, one
of `records` has late tuples and dead letters. `partition` is the worker of `tuples`, and otherwise the partition of
`aggregates` whose task gets the block. `progress` is a `SourceProgress`, `work` is a `WorkProgress`."""
TICK = "tick"
"""Kind of the row that each task that merges gets, with or without partials. Its partition is the number of the task:
that of a partition of `aggregates`, or the next number for the task that measures the load."""
ROWS = "kind string, partition int, block binary"
RECORDS_PER_BLOCK = 5_000


class SourceProgress(msgspec.Struct):
    """What a task has read of a source partition."""

    topic: str
    partition: int
    records: int = 0
    timed_records: int = 0
    """Number of records with an event time."""
    next_offset: int = 0
    max_time: int | None = None
    """Largest event time in ms so far, also of earlier micro-batches."""
    newest_ms: int = 0
    """Kafka timestamp of the last record in ms."""
    late: int = 0
    dead_letters: int = 0


class WorkProgress(msgspec.Struct):
    """What a task that has aggregated tuples has done."""

    tuples: int
    seconds: float
    """Time that the task spent, with the simulated cost."""


@dataclass(frozen=True, slots=True)
class SplitTask:
    """Turns the records of a micro-batch into partials. Spark sends it to the tasks.

    A task gets whole ranges of source partitions, each in the order of its offsets, so lateness is final.
    """

    settings: PipelineSettings
    partition_counts: Mapping[str, int]
    """Number of partitions of the source topics and of `tuples`, by full name."""
    max_times: Mapping[TopicPartition, int | None]
    """Largest event time before the micro-batch, of all source partitions."""
    now: int
    """Wall-clock time of the micro-batch in ms."""

    def ticks(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of kind TICK, as `ROWS`. One task does this."""
        rows = _Rows()
        for number in range(self.settings.topics.aggregator_partitions + 1):
            rows.add(TICK, number, b"")
        return rows.take()

    def split(self, batches: Iterable[MessageBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `ROWS`."""
        started = time.perf_counter()
        splitter = _Splitter(self)
        for batch in batches:
            splitter.process(batch)
            yield from splitter.rows.take()
        splitter.finish(started)
        yield from splitter.rows.take()


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

    def add_work(self, tuples: int, started: float) -> None:
        """Add the progress of a task that has started at this time."""
        self.add(WORK, 0, msgspec.json.encode(WorkProgress(tuples, time.perf_counter() - started)))

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, and drop them."""
        if self.kinds:
            columns = [pa.array(self.kinds), pa.array(self.partitions, pa.int32()), pa.array(self.blocks, pa.binary())]
            yield pa.record_batch(columns, ["kind", "partition", "block"])
        self.kinds, self.partitions, self.blocks = [], [], []


@dataclass(slots=True)
class _Source:
    """A source partition of a task."""

    number: int
    """That of the worker partition which stands for it, and of its partition of `tuples`."""
    progress: SourceProgress
    router: RouterStep | None
    """Chooses a worker for each tuple, if tuples have a cost. It starts without loads and knows this partition only, so
    a repeated task chooses the same workers, in whichever order it reads the partitions."""
    target: int
    """Partition of `aggregates` whose task writes late tuples and dead letters: the same one in a repeated micro-batch,
    also if source partitions were added."""
    records: list[OutputRecord] = field(default_factory=list)
    """Late tuples and dead letters that are not yet rows."""


class _Splitter:
    """Processes the records of one task."""

    def __init__(self, task: SplitTask) -> None:
        self.rows = _Rows()
        self._task = task
        self._numbers = {source: number for number, source in enumerate(sorted(task.max_times))}
        self._targets = task.settings.topics.aggregator_partitions
        counts, tuples = dict(task.partition_counts), task.settings.topic("tuples")
        self._splitter = step_of("splitter", task.settings, counts, SplitterStep)
        self._splitter.observe_topics({topic: count for topic, count in counts.items() if topic != tuples})
        self._worker = step_of("worker", task.settings, counts, WorkerStep)
        self._schema = _tuples_header(task.settings)
        self._sources: dict[TopicPartition, _Source] = {}

    def process(self, batch: MessageBatch) -> None:
        """Process the next records of a source partition."""
        source = self._sources.get(batch.source) or self._open(batch.source)
        timed_before = self._splitter.timed_records
        outputs = [*self._splitter.process(batch, self._task.now), *self._splitter.held_records(batch.source)]
        tuples = [output for output in outputs if output.topic == "tuples"]
        if tuples and source.router is not None:
            self._route(source.number, source.router, tuples)
        elif tuples:
            target = TopicPartition("worker-input", source.number)
            now = self._task.now
            deque(self._worker.process(MessageBatch.of_outputs(target, tuples, now), now), maxlen=0)
        self._add_records(source, [output for output in outputs if output.topic != "tuples"])
        progress = source.progress
        progress.records += len(batch.messages)
        progress.timed_records += self._splitter.timed_records - timed_before
        progress.next_offset, progress.newest_ms = batch.next_offset, batch.last_timestamp
        if self._worker.wants_commit:
            self._flush()

    def _open(self, partition: TopicPartition) -> _Source:
        number, task = self._numbers[partition], self._task
        self._splitter.assign(partition, encode_checkpoint(Checkpoint(task.max_times[partition])), ())
        self._worker.assign(number, None, ())
        router: RouterStep | None = None
        if not task.settings.worker.cost.is_free:
            router = step_of("router", task.settings, task.partition_counts, RouterStep)
            router.assign(number, None, ())
        target = zlib.crc32(f"{partition.topic}/{partition.partition}".encode()) % self._targets
        source = self._sources[partition] = _Source(number, SourceProgress(*partition), router, target)
        return source

    def _route(self, number: int, router: RouterStep, tuples: list[OutputRecord]) -> None:
        """Choose a worker for each tuple. The driver knows the watermarks, so the records have none."""
        now = self._task.now
        records = [OutputRecord("tuples", output.value, headers=self._schema) for output in tuples]
        batch = MessageBatch.of_outputs(TopicPartition("tuples", number), records, now)
        for output in (*router.process(batch, now), *router.held_records()):
            if output.value is not None and output.partition is not None:
                self.rows.add(TUPLES, output.partition, output.value)

    def _add_records(self, source: _Source, records: list[OutputRecord]) -> None:
        late = sum(record.topic == "late" for record in records)
        source.progress.late += late
        source.progress.dead_letters += len(records) - late
        source.records += records
        if len(source.records) >= RECORDS_PER_BLOCK:
            self._write_records(source)

    def _write_records(self, source: _Source) -> None:
        if source.records:
            self.rows.add(RECORDS, source.target, msgspec.msgpack.encode(source.records))
            source.records = []

    def _flush(self) -> None:
        """Write the partials of all source partitions since the last flush."""
        self.rows.add_partials(self._worker.flush(self._task.now))

    def finish(self, started: float) -> None:
        """Write the remaining rows of a task that has started at this time."""
        self._flush()
        for partition, source in self._sources.items():
            self._write_records(source)
            source.progress.max_time = decode_checkpoint(self._splitter.checkpoint(partition)).max_time
            self.rows.add(PROGRESS, 0, msgspec.json.encode(source.progress))
        if self._task.settings.worker.cost.is_free:
            self.rows.add_work(self._worker.tuples, started)


@dataclass(frozen=True, slots=True)
class WorkTask:
    """Aggregates the tuples of some workers, after their simulated cost. Spark sends it to the tasks.

    The workers sleep at the same time, as those of a stage do. Rows of other kinds pass through.
    """

    settings: PipelineSettings
    partition_counts: Mapping[str, int]
    """As in `SplitTask`."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `ROWS`, and one row of kind WORK if there were tuples. Columns: those of `ROWS`."""
        started = time.perf_counter()
        step = step_of("worker", self.settings, self.partition_counts, WorkerStep)
        header, rows = _tuples_header(self.settings), _Rows()
        busy_until: dict[int, float] = {}
        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("kind", "partition", "block"))
            for kind, partition, block in zip(*columns, strict=True):
                if kind != TUPLES:
                    rows.add(kind, partition, block)
                    continue
                if partition not in busy_until:
                    busy_until[partition] = started
                    step.assign(partition, None, ())
                records = [OutputRecord("worker-input", block, headers=header)]
                before = step.tuples
                target = TopicPartition("worker-input", partition)
                deque(step.process(MessageBatch.of_outputs(target, records, 0), 0), maxlen=0)
                busy_until[partition] += self.settings.worker.cost.seconds(step.tuples - before)
                if step.wants_commit:
                    rows.add_partials(step.flush(0))
            yield from rows.take()
        if step.tuples:
            time.sleep(max(0.0, max(busy_until.values()) - time.perf_counter()))
            rows.add_partials(step.flush(0))
            rows.add_work(step.tuples, started)
        yield from rows.take()


def _tuples_header(settings: PipelineSettings) -> OwnHeaders:
    return [schema_header(TupleFormat(settings.values).columns_name)]
