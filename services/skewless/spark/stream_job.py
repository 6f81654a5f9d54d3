"""The query of `skewless stream`: runs the micro-batches, and commits what is complete.

A micro-batch is one Spark job of two stages. The first one reads the records of the source as partials. The second one
merges the partials, and commits each partition of `aggregates` in a transaction of its own. Then the driver commits the
offsets of the source, which name the micro-batch as complete.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.streaming.query import StreamingQuery

from skewless import topology
from skewless.algorithms.watermark import WatermarkState
from skewless.errors import (
    ConfigurationError,
    FencedError,
    TransactionAbortedError,
    UnavailableError,
    UnreachableError,
)
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.offsets import OffsetReader, offset_consumer
from skewless.kafka.consumer.topic_ids import wait_for_topic_ids
from skewless.kafka.consumer.topic_reader import has_records_after
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.spark import kafka_options, user_module
from skewless.spark.batch_pipeline import in_partitions
from skewless.spark.state_process import Address
from skewless.spark.stream_merge import (
    MERGED,
    OUTCOMES,
    RETRY_PAUSE_S,
    RETRY_S,
    Merged,
    MergeTask,
    watermark_of,
)
from skewless.spark.stream_source import ReadTask, SourceRange, planned, spread
from skewless.spark.stream_start import (
    SourceState,
    StreamStart,
    committed_sources,
    partitions_gone,
    transactional_id,
)
from skewless.spark.stream_tasks import (
    PARTIALS,
    PROGRESS,
    ROWS,
    TICK,
    WORK,
    SourceProgress,
    SplitTask,
    WorkProgress,
    WorkTask,
)
from skewless.stages.source_partition import PartitionActivity
from skewless.stages.splitter.checkpoint import Checkpoint, decode_checkpoint
from skewless.times import instant_text
from skewless.wire.offset_metadata import engine_of
from skewless.wire.topic_partition import TopicPartition

RECORDS_PER_BATCH = 2_000_000
"""Maximum records of a micro-batch. It bounds what a task holds, and the time for which a backlog shows no result."""

_progress_decoder = msgspec.json.Decoder(SourceProgress)
_work_decoder = msgspec.json.Decoder(WorkProgress)
_merged_decoder = msgspec.json.Decoder(Merged)


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """What the tasks of a micro-batch have done."""

    progress: Sequence[SourceProgress]
    work: Sequence[WorkProgress]
    merged: Sequence[Merged]


class StreamJob:
    """Micro-batches of a pipeline. One thread at a time uses it."""

    def __init__(self, start: StreamStart, spark: SparkSession, report: Callable[[str], None]) -> None:
        self.start = start
        self._spark = spark
        self._settings = start.settings
        self._report = report
        self._sources = dict(start.sources)
        detects_idle = self._settings.event_time.idle_timeout_ms is not None
        self._activity = {
            source: PartitionActivity(idle=state.checkpoint.idle and detects_idle)
            for source, state in start.sources.items()
        }
        self._topic_ids = dict(start.topic_ids)
        self._batch = start.batch
        self._merged = dict(start.merged)
        self._merged_watermark: WatermarkState | None = None
        """Watermark that all partitions of `aggregates` have."""
        self._offsets = OffsetReader(self._settings.kafka)
        self._admin = Admin(self._settings.kafka)
        self._lock = threading.Lock()
        self._stopped = False
        self._holders: dict[int, Address] = {}
        """Processes that hold the windows of the tasks that merge."""
        self._secret = secrets.token_bytes(32)
        self._checkpoint = self._query_id = ""
        self._has_id = threading.Event()
        self._producer = self._opened()
        self._error: Exception | None = None
        """Error of a micro-batch, which ended the query."""
        self.records = 0
        """Records of all micro-batches of this run."""
        self._read: set[TopicPartition] = set()
        """Source partitions of which this run has read records."""
        self._last_ends: dict[TopicPartition, int] = {}
        """Ends of source partitions when `_is_read` was last called, since their last records with an event time."""

    def _opened(self) -> TransactionalProducer:
        settings = self._settings
        group = settings.group(topology.SOURCE_STAGE)
        producer = TransactionalProducer(settings.kafka, settings.transport, settings.topic, transactional_id(group))
        producer.attach(offset_consumer(settings.kafka, group))
        producer.open(settings.kafka.connect_timeout_s)
        return producer

    @contextlib.contextmanager
    def running(self, checkpoint: str, trigger_s: float | None) -> Iterator[StreamingQuery]:
        """Run the query during the block. `trigger_s`: seconds between micro-batches; None: until all is read.

        Raises the error of a micro-batch that fails, also of the one that is completed after the block.
        """
        settings = self._settings
        user_module.send(self._spark, settings.splitter)
        self._check_first()
        self._find_partitions({})  # Spark needs the offsets of all that exist by now
        starts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for source, state in self._sources.items():
            starts[source.topic][source.partition] = state.offset
        records = kafka_options.read_stream(
            self._spark, settings.kafka, settings.aggregated, starts, records_per_batch=RECORDS_PER_BATCH
        )
        trigger: dict[str, Any] = (
            {"availableNow": True}
            if trigger_s is None
            else {"processingTime": f"{round(trigger_s * 1000)} milliseconds"}
        )
        # It would plan each of the two stages again, and both are as even as they can be.
        self._spark.conf.set("spark.sql.adaptive.enabled", "false")
        # A task that Spark repeats after an executor has ended reads the same records, but takes another time, which is
        # in its output. From Spark 4.1 on, another checksum would fail the job, because it cannot repeat commits.
        self._spark.conf.set("spark.sql.shuffle.orderIndependentChecksum.enabled", "false")
        self._spark.conf.set("spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch", "false")
        # That of the offsets which the driver reads from the checkpoint. Spark 4.2 and newer also has another one.
        self._spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "1")
        writer = records.writeStream.queryName(settings.full_name).foreachBatch(self._run)
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        self._checkpoint, self._query_id = checkpoint, query.id
        self._has_id.set()
        try:
            yield query
        finally:
            with self._lock:  # a micro-batch that runs is completed
                self._stopped = True
            query.stop()
            self._producer.close()
            self._producer.consumer.close()
            if self._error is not None:
                raise self._error from None  # the error of Spark has only its text

    def _check_first(self) -> None:
        """Raise FencedError if the pipeline was handed over since the start. From now on the driver prevents that."""
        try:
            self._check_committed(self._sources)
        except UnavailableError as error:
            raise UnreachableError(f"{error}: check that the brokers run") from None

    def _run(self, records: DataFrame, number: int) -> None:
        """Run a micro-batch. Spark calls it again for one whose end it does not know."""
        self._has_id.wait()
        with self._lock:
            if self._stopped:
                raise RuntimeError("the query is stopped")  # otherwise Spark would commit the micro-batch
            try:
                self._process(records.sparkSession, number)
            except Exception as error:
                self._error = error
                raise

    def _process(self, spark: SparkSession, number: int) -> None:
        started = time.monotonic()
        batch = f"{self._query_id}/{number}"
        if batch == self._batch:
            return
        self._check_order(batch, number)
        now, ends = planned(spark, self._checkpoint, number)
        self._find_partitions(ends)
        outcomes = self._merge(self._aggregated(spark, now, ends), self._batch, batch)
        self._observe(outcomes.progress, ends, batch)
        self._merged_watermark = self._watermark()
        self._commit()
        self._batch, self._merged = batch, dict.fromkeys(self._merged, batch)
        self._report(self._progress(number, outcomes, time.monotonic() - started))

    def _check_order(self, batch: str, number: int) -> None:
        """Raise ConfigurationError if Spark's checkpoint is not that of the last micro-batch."""
        query, _, last = self._batch.rpartition("/")
        expected = int(last) + 1 if query == self._query_id else 0
        pipeline = f"pipeline {self._settings.name}"
        if number != expected:
            completed = f"has completed micro-batch {self._batch}" if self._batch else "has no completed micro-batch"
            raise ConfigurationError(
                f"--checkpoint: is at micro-batch {batch}, and {pipeline} {completed}: the checkpoint is older, or "
                "that of another pipeline. Name the right folder, or a new one to continue after the last micro-batch"
            )
        if unfinished := set(self._merged.values()) - {self._batch, batch}:
            raise ConfigurationError(
                f"--checkpoint: micro-batch {', '.join(sorted(unfinished))} of {pipeline} is not complete, and only "
                "the checkpoint with which it began can complete it: name the folder of that run"
            )

    def _find_partitions(self, ends: Mapping[TopicPartition, int]) -> None:
        """Add source partitions that exist by now or are in the micro-batch, and the ids of their topics.

        Raises BrokerError if the micro-batch has partitions that the query no longer reads.
        """
        counts = self._admin.partition_counts()
        topics = self._settings.aggregated.select(counts)
        existing = {TopicPartition(topic, number) for topic in topics for number in range(counts.get(topic, 0))}
        existing |= {source for source in ends if source.topic in topics}
        for source in sorted(existing - self._sources.keys()):
            self._sources[source] = SourceState(0, Checkpoint(start=0))
            self._activity[source] = PartitionActivity()
        if not ends.keys() <= self._sources.keys():
            raise partitions_gone(self._checkpoint, is_begun=set(self._merged.values()) != {self._batch})
        if new := {source.topic for source in self._sources} - self._topic_ids.keys():
            self._topic_ids |= wait_for_topic_ids(self._settings.kafka.client_options(), new, RETRY_S)

    def _aggregated(self, spark: SparkSession, now: int, ends: Mapping[TopicPartition, int]) -> DataFrame | None:
        """Return the partials of the records up to some offsets, with progress, late tuples and dead letters.

        None without records.
        """
        begins = {source: state.offset for source, state in self._sources.items()}
        ranges = [SourceRange(source, begins[source], end) for source, end in ends.items() if begins[source] < end]
        if not ranges:
            return None
        tasks = spread(ranges, spark.sparkContext.defaultParallelism)
        split = self._split_task(now)
        numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
        rows = numbers.mapInArrow(ReadTask(split, tasks), ROWS)
        if self._settings.worker.cost.is_free:
            return rows
        count = min(self._settings.router.workers, spark.sparkContext.defaultParallelism)
        numbered = in_partitions(rows.withColumn("task", F.col("partition") % count), count, "task")
        return numbered.mapInArrow(WorkTask(self._settings, split.partition_counts), ROWS)

    def _split_task(self, now: int) -> SplitTask:
        counts: dict[str, int] = {}
        for source in self._sources:
            counts[source.topic] = max(counts.get(source.topic, 0), source.partition + 1)
        tuples = self._settings.topic("tuples")
        counts[tuples] = self.start.partition_counts[tuples]
        max_times = {source: state.checkpoint.max_time for source, state in self._sources.items()}
        return SplitTask(self._settings, counts, max_times, now)

    def _observe(self, progress: Sequence[SourceProgress], ends: Mapping[TopicPartition, int], batch: str) -> None:
        """Note what was read of the source partitions: everything before some offsets."""
        now = _now()
        for of_source in progress:
            source = TopicPartition(of_source.topic, of_source.partition)
            if of_source.timed_records:
                self._activity[source].observe_records(now)
                self._read.add(source)
                self._last_ends.pop(source, None)
            checkpoint = self._sources[source].checkpoint._replace(max_time=of_source.max_time)
            self._sources[source] = SourceState(of_source.next_offset, checkpoint)
            self.records += of_source.records
        for source, state in self._sources.items():
            checkpoint = state.checkpoint._replace(idle=self._activity[source].idle, batch=batch)
            # A transaction marker may follow the last record. Retention deletes it with the record.
            self._sources[source] = SourceState(max(state.offset, ends.get(source, 0)), checkpoint)

    def _watermark(self) -> WatermarkState:
        return watermark_of(self._checkpoints(), self._settings.event_time.lateness_ms)

    def _checkpoints(self) -> dict[TopicPartition, Checkpoint]:
        """Return the checkpoints of the source partitions, with what is known of their activity."""
        return {
            source: state.checkpoint._replace(idle=self._activity[source].idle)
            for source, state in self._sources.items()
        }

    def _source_ids(self) -> dict[str, int]:
        """Return the known ids of the source topics."""
        topics = {source.topic for source in self._sources}
        return {topic: topic_id for topic, topic_id in self._topic_ids.items() if topic in topics}

    def _merge(self, rows: DataFrame | None, previous: str, batch: str) -> _Outcomes:
        """Merge and commit partials in all partitions of `aggregates`."""
        settings = self._settings
        task = MergeTask(
            settings,
            self.start.schema,
            self.start.topic_ids.get(settings.topic("partials")),
            self._checkpoints(),
            {} if rows is None else self._source_ids(),
            _now(),
            previous,
            batch,
            workers=len(self._sources) if settings.worker.cost.is_free else settings.router.workers,
            holders=self._holders,
            secret=self._secret,
        )
        if rows is None:
            rows = self._spark.range(0, task.load_task + 1, 1, numPartitions=1).select(
                F.lit(TICK).alias("kind"), F.col("id").cast("int").alias("partition"), F.lit(b"").alias("block")
            )
        blocks = rows.withColumn("task", F.explode(_tasks_of_row(task.load_task)))
        # In descending order, so that the longest task starts first: that of the load gets all partials.
        ordered = blocks.withColumn("order", F.lit(task.load_task) - F.col("task"))
        numbered = in_partitions(ordered, task.load_task + 1, "order").drop("order")
        outcomes = _outcomes(numbered.mapInArrow(task, OUTCOMES))
        self._holders = {merged.number: merged.holder for merged in outcomes.merged if merged.holder is not None}
        return outcomes

    def _commit(self) -> None:
        """Commit the offsets of the source partitions. Raises FencedError if another query has committed."""
        offsets = committed_sources(self._sources, self.start.schema, self._topic_ids)
        deadline = time.monotonic() + RETRY_S
        while True:
            try:
                self._producer.connect()
                self._check_committed(offsets)
                self._producer.commit(offsets)
            except (TransactionAbortedError, UnavailableError) as error:
                if time.monotonic() > deadline:
                    raise UnreachableError(f"the offsets cannot be committed for {RETRY_S:g} s: {error}") from None
                self._producer.abort(replace=True)
                time.sleep(RETRY_PAUSE_S)
            else:
                return

    def _check_committed(self, sources: Mapping[TopicPartition, Any]) -> None:
        committed = self._producer.committed_offsets(sources)
        if any(engine_of(offset.metadata) == "services" for offset in committed.values()):
            raise FencedError(f"pipeline {self._settings.name} was handed back to the stages")
        batches = {decode_checkpoint(offset.checkpoint).batch or "" for offset in committed.values()}
        own = {self._batch, *(state.checkpoint.batch or "" for state in self._sources.values()), ""}
        if not batches <= own:
            raise FencedError(f"another query of pipeline {self._settings.name} has completed {batches - own}")

    def advance_idle(self, *, ended: bool = False) -> None:
        """Note source partitions that are idle, and close the windows that they held open.

        `ended`: all that is available was read, so partitions without records in this run are idle.
        """
        timeout_ms = self._settings.event_time.idle_timeout_ms
        if timeout_ms is None or not self._lock.acquire(blocking=False):
            return
        try:
            if self._stopped or set(self._merged.values()) != {self._batch} or not self._batch:
                return
            self._observe_idle(timeout_ms, ended=ended)
            if self._merged_watermark is not None and self._watermark() == self._merged_watermark:
                return
            self._observe([], {}, self._batch)
            self._merge(None, self._batch, self._batch)
            self._merged_watermark = self._watermark()
            self._commit()
        finally:
            self._lock.release()

    def _observe_idle(self, timeout_ms: int, *, ended: bool) -> None:
        now = _now()
        for source, activity in self._activity.items():
            if ended:
                activity.idle = activity.idle or source not in self._read
            elif not activity.idle and now - activity.last_seen_ms >= timeout_ms and self._is_read(source):
                activity.observe_end(now, drain=False, idle_timeout_ms=timeout_ms)

    def _is_read(self, source: TopicPartition) -> bool:
        """Return whether all records of a source partition were read. Transaction markers may follow the last one.

        A partition that gets records all the time always has unread ones. So those that it had at the last call count.
        """
        offset, last_end = self._sources[source].offset, self._last_ends.get(source)
        self._last_ends[source] = self._offsets.end(source.topic)[source.partition]
        if last_end is not None and offset >= last_end:
            return True
        return not has_records_after(self._offsets, source.topic, {source.partition: offset})

    def _progress(self, number: int, outcomes: _Outcomes, seconds: float) -> str:
        """Return the line that says what a micro-batch did."""
        progress, merged, lag = outcomes.progress, outcomes.merged, self._lag()
        records = sum(of_source.records for of_source in progress)
        late = sum(of_source.late for of_source in progress)
        dead_letters = sum(of_source.dead_letters for of_source in progress)
        newest = max((of_source.newest_ms for of_source in progress), default=0)
        lag_s = max(0.0, (_now() - newest) / 1000) if lag and newest else 0.0
        watermark = self._watermark().watermark
        event_time = "-" if watermark is None else instant_text(watermark // 1000 * 1000)
        open_windows = max((task.open_windows for task in merged), default=0)
        times = [task.seconds for task in outcomes.work]
        slowest_to_mean = max(times) * len(times) / sum(times) if sum(times) else 1.0
        parts = [
            f"{records:,} records ({records / max(seconds, 0.001):,.0f}/s)",
            f"{sum(task.results for task in merged):,} results",
            *([f"{late:,} late"] if late else []),
            *([f"{dead_letters:,} dead letters"] if dead_letters else []),
            f"lag {lag:,} records {lag_s:,.0f} s",
            f"watermark {event_time}",
            f"{open_windows} open windows",
            f"slowest task {slowest_to_mean:.1f} x mean",
        ]
        return f"micro-batch {number}: {', '.join(parts)}"

    def _lag(self) -> int:
        ends: dict[str, Mapping[int, int]] = {}
        lag = 0
        for source, state in self._sources.items():
            if source.topic not in ends:
                ends[source.topic] = self._offsets.end(source.topic)
            lag += max(0, ends[source.topic].get(source.partition, 0) - state.offset)
        return lag


def _outcomes(rows: DataFrame) -> _Outcomes:
    """Run a micro-batch."""
    collected = rows.collect()
    return _Outcomes(
        [_progress_decoder.decode(block) for kind, block in collected if kind == PROGRESS],
        [_work_decoder.decode(block) for kind, block in collected if kind == WORK],
        [_merged_decoder.decode(block) for kind, block in collected if kind == MERGED],
    )


def _tasks_of_row(load_task: int) -> Column:
    """Return the numbers of the tasks that merge a row."""
    kind, partition, load = F.col("kind"), F.col("partition"), F.lit(load_task)
    return (
        F.when(kind == PARTIALS, F.array(partition, load))
        .when(kind == PROGRESS, F.sequence(F.lit(0), load))
        .when(kind == WORK, F.array(load))
        .otherwise(F.array(partition))
    )


def _now() -> int:
    return round(time.time() * 1000)
