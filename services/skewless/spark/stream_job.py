"""The query of `skewless stream`: runs the micro-batches, and commits what is complete.

A micro-batch has two Spark jobs. The first one reads the records of each source partition as partials. The driver then
knows the watermark. The second one merges the partials, and commits each partition of `aggregates` in a transaction of
its own. At last the driver commits the offsets of the source, which name the micro-batch as complete.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.storagelevel import StorageLevel

from skewless import topology
from skewless.algorithms.watermark import WatermarkGenerator, WatermarkState, WatermarkTracker
from skewless.errors import (
    ConfigurationError,
    FencedError,
    SkewlessError,
    TransactionAbortedError,
    UnavailableError,
    UnreachableError,
)
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.offsets import OffsetReader, offset_consumer
from skewless.kafka.consumer.topic_ids import read_topic_ids
from skewless.kafka.consumer.topic_reader import has_records_after
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.spark import kafka_options, user_module
from skewless.spark.batch_pipeline import as_function, in_partitions
from skewless.spark.stream_merge import MERGED, OBSERVED, RETRY_PAUSE_S, RETRY_S, TICK, MergeTask
from skewless.spark.stream_start import SourceState, StreamStart, check_topic_ids, committed_sources, transactional_id
from skewless.spark.stream_tasks import (
    PARTIALS,
    PROGRESS,
    ROWS,
    WORK,
    SourceProgress,
    SplitTask,
    WorkProgress,
    WorkTask,
)
from skewless.stages.source_partition import PartitionActivity
from skewless.stages.splitter.checkpoint import Checkpoint, decode_checkpoint
from skewless.wire.offset_metadata import engine_of
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RECORDS_PER_BATCH = 2_000_000
"""Maximum records of a micro-batch. It bounds what a task holds, and the time for which a backlog shows no result."""

_progress_decoder = msgspec.json.Decoder(SourceProgress)
_work_decoder = msgspec.json.Decoder(WorkProgress)


@dataclass(frozen=True, slots=True)
class TriggerProgress:
    """What a micro-batch did."""

    number: int
    records: int
    tuples: int
    late: int
    dead_letters: int
    results: int
    seconds: float
    lag_records: int
    lag_s: float
    """Age of the newest record that was read, while there are unread ones."""
    watermark_ms: int | None
    open_windows: int
    """The most open windows of any partition."""
    slowest_to_mean: float
    """Time of the slowest task that read records or was a worker, divided by the mean."""


class StreamJob:
    """Micro-batches of a pipeline. One thread at a time uses it."""

    def __init__(self, start: StreamStart, spark: SparkSession, report: Callable[[TriggerProgress], None]) -> None:
        self.start = start
        self._spark = spark
        self._settings = start.settings
        self._report = report
        self._sources = dict(start.sources)
        self._activity = {
            source: PartitionActivity(idle=state.checkpoint.idle) for source, state in start.sources.items()
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
        self._query_id = ""
        self._has_id = threading.Event()
        self._producer = self._opened()
        self.error: SkewlessError | None = None
        """Error that ended the query."""
        self.records = 0
        """Records of all micro-batches of this run."""
        self._read: set[TopicPartition] = set()
        """Source partitions of which this run has read records."""

    def _opened(self) -> TransactionalProducer:
        settings = self._settings
        group = settings.group(topology.SOURCE_STAGE)
        producer = TransactionalProducer(settings.kafka, settings.transport, settings.topic, transactional_id(group))
        producer.attach(offset_consumer(settings.kafka, group))
        producer.open(settings.kafka.connect_timeout_s)
        return producer

    @contextlib.contextmanager
    def running(self, checkpoint: str, trigger_s: float | None) -> Iterator[StreamingQuery]:
        """Run the query during the block. `trigger_s`: seconds between micro-batches; None: until all is read."""
        settings = self._settings
        user_module.send(self._spark, settings.splitter)
        self._check_first()
        headers = bool(settings.splitter.headers)
        records = kafka_options.read_stream(
            self._spark,
            settings.kafka,
            settings.aggregated,
            self.start.offsets(),
            records_per_batch=RECORDS_PER_BATCH,
            headers=headers,
        ).select(
            "topic",
            "partition",
            "offset",
            F.unix_millis("timestamp").alias("timestamp"),
            "key",
            "value",
            *(["headers"] if headers else []),
            # The time of the micro-batch is in Spark's checkpoint, so a repetition refuses the same records.
            F.unix_millis(F.current_timestamp()).alias("now"),
        )
        trigger: dict[str, Any] = (
            {"availableNow": True}
            if trigger_s is None
            else {"processingTime": f"{round(trigger_s * 1000)} milliseconds"}
        )
        writer = records.writeStream.queryName(settings.full_name).foreachBatch(self._run)
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        self._query_id = query.id
        self._has_id.set()
        try:
            yield query
        finally:
            with self._lock:  # a micro-batch that runs is completed
                self._stopped = True
            query.stop()
            self._producer.close()
            self._producer.consumer.close()

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
                self._process(records, number)
            except SkewlessError as error:
                self.error = error
                raise

    def _process(self, records: DataFrame, number: int) -> None:
        started = time.monotonic()
        batch = f"{self._query_id}/{number}"
        if batch == self._batch:
            return
        self._check_order(batch, number)
        self._find_partitions()
        with _cached(self._aggregated(records)) as rows:
            is_progress = F.col("kind").isin(PROGRESS, WORK)
            collected = rows.where(is_progress).select("kind", "block").collect()
            progress = [_progress_decoder.decode(bytes(block)) for kind, block in collected if kind == PROGRESS]
            times = [_work_decoder.decode(bytes(block)).seconds for kind, block in collected if kind == WORK]
            self._observe(progress, batch)
            self._check_topics()
            merged = self._merge(rows.where(~is_progress), self._batch, batch)
        self._commit()
        self._batch, self._merged = batch, dict.fromkeys(self._merged, batch)
        times = times or [of_source.seconds for of_source in progress]
        self._report(self._progress(number, progress, merged, times, time.monotonic() - started))

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

    def _find_partitions(self) -> None:
        """Add source partitions that exist by now."""
        counts = self._admin.partition_counts()
        for topic in self._settings.aggregated.select(counts):
            for number in range(counts.get(topic, 0)):
                source = TopicPartition(topic, number)
                if source not in self._sources:
                    self._sources[source] = SourceState(0, Checkpoint())
                    self._activity[source] = PartitionActivity()

    def _aggregated(self, records: DataFrame) -> DataFrame:
        """Return the partials of records, with progress, late tuples and dead letters."""
        split = self._split_task()
        rows = records.mapInArrow(as_function(split), ROWS)
        if self._settings.worker.cost.is_free:
            return rows
        workers = self._settings.router.workers
        numbered = in_partitions(rows.withColumn("task", F.col("partition") % workers), workers, "task")
        return numbered.mapInArrow(as_function(WorkTask(self._settings, split.partition_counts)), ROWS)

    def _check_topics(self) -> None:
        """Raise BrokerError if a source topic was created again. Called when the records were read."""
        found = self._read_topic_ids(sorted({source.topic for source in self._sources}))
        check_topic_ids(self._topic_ids, found)
        self._topic_ids |= found

    def _read_topic_ids(self, topics: list[str]) -> Mapping[str, int]:
        deadline = time.monotonic() + RETRY_S
        while True:
            try:
                return read_topic_ids(self._settings.kafka.client_options(), topics)
            except UnavailableError as error:
                if time.monotonic() > deadline:
                    raise UnreachableError(
                        f"the source topics cannot be described for {RETRY_S:g} s: {error}"
                    ) from None
                time.sleep(RETRY_PAUSE_S)

    def _split_task(self) -> SplitTask:
        counts: dict[str, int] = {}
        for source in self._sources:
            counts[source.topic] = max(counts.get(source.topic, 0), source.partition + 1)
        tuples = self._settings.topic("tuples")
        counts[tuples] = self.start.partition_counts[tuples]
        max_times = {source: state.checkpoint.max_time for source, state in self._sources.items()}
        return SplitTask(self._settings, counts, max_times)

    def _observe(self, progress: Sequence[SourceProgress], batch: str) -> None:
        """Note what was read of the source partitions."""
        now = _now()
        for of_source in progress:
            source = TopicPartition(of_source.topic, of_source.partition)
            self._activity[source].observe_records(now)
            self._read.add(source)
            checkpoint = self._sources[source].checkpoint._replace(max_time=of_source.max_time)
            self._sources[source] = SourceState(of_source.next_offset, checkpoint)
            self.records += of_source.records
        for source, state in self._sources.items():
            checkpoint = state.checkpoint._replace(idle=self._activity[source].idle, batch=batch)
            self._sources[source] = SourceState(state.offset, checkpoint)

    def _watermark(self) -> WatermarkState:
        tracker = WatermarkTracker(len(self._sources))
        watermarks: dict[int, int] = {}
        lateness_ms = self._settings.event_time.lateness_ms
        for number, state in enumerate(self._sources.values()):
            watermark = WatermarkGenerator(lateness_ms, state.checkpoint.max_time).watermark()
            if watermark is not None:
                watermarks[number] = watermark
        tracker.update(watermarks, [n for n, source in enumerate(self._sources) if self._activity[source].idle])
        return tracker.state()

    def _merge(self, rows: DataFrame | None, previous: str, batch: str) -> list[Any]:
        """Merge and commit partials in all partitions of `aggregates`."""
        settings, spark = self._settings, self._spark if rows is None else rows.sparkSession
        watermark = self._watermark()
        task = MergeTask(
            settings,
            self.start.schema,
            self.start.topic_ids.get(settings.topic("partials")),
            watermark,
            _now(),
            previous,
            batch,
            workers=len(self._sources) if settings.worker.cost.is_free else settings.router.workers,
        )
        number = F.col("id").cast("int")
        blocks = spark.range(task.load_task + 1).select(
            number.alias("task"), F.lit(TICK).alias("kind"), number.alias("partition"), F.lit(b"").alias("block")
        )
        if rows is not None:
            observed = rows.where(F.col("kind") == PARTIALS).withColumn("kind", F.lit(OBSERVED))
            blocks = blocks.unionByName(rows.withColumn("task", F.col("partition")))
            blocks = blocks.unionByName(observed.withColumn("task", F.lit(task.load_task)))
        numbered = in_partitions(blocks, task.load_task + 1, "task")
        merged: list[Any] = numbered.mapInArrow(as_function(task), MERGED).collect()
        self._merged_watermark = watermark
        return merged

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
            self._observe([], self._batch)
            self._merge(None, self._batch, self._batch)
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
        """Return whether all records of a source partition were read. Transaction markers may follow the last one."""
        offset = self._sources[source].offset
        return not has_records_after(self._offsets, source.topic, {source.partition: offset})

    def _progress(
        self,
        number: int,
        progress: Sequence[SourceProgress],
        merged: Sequence[Any],
        times: Sequence[float],
        seconds: float,
    ) -> TriggerProgress:
        lag = self._lag()
        newest = max((of_source.newest_ms for of_source in progress), default=0)
        return TriggerProgress(
            number=number,
            records=sum(of_source.records for of_source in progress),
            tuples=sum(of_source.tuples for of_source in progress),
            late=sum(of_source.late for of_source in progress),
            dead_letters=sum(of_source.dead_letters for of_source in progress),
            results=sum(row.results for row in merged),
            seconds=seconds,
            lag_records=lag,
            lag_s=max(0.0, (_now() - newest) / 1000) if lag and newest else 0.0,
            watermark_ms=self._watermark().watermark,
            open_windows=max((row.open_windows for row in merged), default=0),
            slowest_to_mean=max(times) * len(times) / sum(times) if sum(times) else 1.0,
        )

    def _lag(self) -> int:
        ends: dict[str, Mapping[int, int]] = {}
        lag = 0
        for source, state in self._sources.items():
            if source.topic not in ends:
                ends[source.topic] = self._offsets.end(source.topic)
            lag += max(0, ends[source.topic].get(source.partition, 0) - state.offset)
        return lag


@contextlib.contextmanager
def _cached(rows: DataFrame) -> Iterator[DataFrame]:
    cached = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield cached
    finally:
        cached.unpersist()


def _now() -> int:
    return round(time.time() * 1000)
