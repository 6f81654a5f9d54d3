"""Merges the partials of a micro-batch and commits the results: one transaction per partition of `aggregates`.

The transaction has the results, the changelog, late tuples and dead letters, and the offset of the partition of
`partials`, whose checkpoint names the micro-batch. A task reads this checkpoint before it merges. So a micro-batch that
Spark repeats is merged once: a task of a committed micro-batch writes nothing. See docs/explanation/exactness.md.

One more task gets the partials of all partitions, and commits the measures of the load in the same way.

Every task gets the progress of all source partitions, from which it computes the watermark. It starts when all records
were read. So reading and merging are two stages of one Spark job, with one shuffle between them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import pyarrow as pa

from skewless import topology
from skewless.algorithms.watermark import WatermarkGenerator, WatermarkState, WatermarkTracker
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import FencedError, TransactionAbortedError, UnavailableError, UnreachableError
from skewless.kafka.consumer.offsets import offset_consumer
from skewless.kafka.consumer.topic_ids import wait_for_topic_ids
from skewless.kafka.consumer.topic_reader import ReadProgress, read_compacted
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.spark import state_process, stream_start
from skewless.spark.state_process import Address
from skewless.spark.stream_start import LOAD_STAGE
from skewless.spark.stream_tasks import PARTIALS, PROGRESS, RECORDS, WORK, SourceProgress
from skewless.spark.stream_windows import Checkpoints, LoadMerger, PartitionMerger
from skewless.stages.observer.restore import restore
from skewless.stages.splitter.checkpoint import Checkpoint
from skewless.wire.changelog import decode_checkpoint, with_batch
from skewless.wire.offset_metadata import encode_offset_metadata
from skewless.wire.record import OutputRecord
from skewless.wire.state_schema import StateSchema
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

log = logging.getLogger(__name__)

MERGED = "merged"
"""Kind of the rows that say what a task has merged."""
OUTCOMES = "kind string, block binary"
"""Rows for the driver: of kind PROGRESS and WORK as they came, and one `Merged` per task."""
RETRY_S = 60.0
"""Time since its first failure for which a task repeats a transaction, if a repetition may succeed."""
RETRY_PAUSE_S = 0.5
HOLDER_LIMIT_S = 180.0
"""Time after which a task no longer waits for the process that holds its windows, and reads them itself."""

Block = tuple[str, int, bytes]
"""Kind, partition and block of a row."""

_records_decoder = msgspec.msgpack.Decoder(list[OutputRecord])
_progress_decoder = msgspec.json.Decoder(SourceProgress)


class Merged(msgspec.Struct):
    """What a task has merged and committed."""

    number: int
    """That of the task."""
    results: int = 0
    open_windows: int = 0
    holder: Address | None = None
    """Process that holds the windows; None if none does."""


def watermark_of(checkpoints: Mapping[TopicPartition, Checkpoint], lateness_ms: int) -> WatermarkState:
    """Return the watermark of all source partitions."""
    tracker = WatermarkTracker(len(checkpoints))
    watermarks: dict[int, int] = {}
    for number, checkpoint in enumerate(checkpoints.values()):
        watermark = WatermarkGenerator(lateness_ms, checkpoint.max_time).watermark()
        if watermark is not None:
            watermarks[number] = watermark
    tracker.update(watermarks, [number for number, of in enumerate(checkpoints.values()) if of.idle])
    return tracker.state()


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges and commits a micro-batch. Spark sends it to the tasks."""

    settings: PipelineSettings
    schema: StateSchema
    topic_id: int | None
    """That of topic `partials`; None if unknown."""
    checkpoints: Mapping[TopicPartition, Checkpoint]
    """Those of all source partitions before the micro-batch."""
    source_ids: Mapping[str, int]
    """Known ids of the source topics. Checked when their records were read; empty if none are."""
    now: int
    previous: str
    """Micro-batch that was complete before."""
    batch: str
    """The micro-batch; the previous one if there is none, and only event time has advanced."""
    workers: int
    """Number of workers whose load is measured."""
    holders: Mapping[int, Address]
    """Processes that hold the windows as of the previous micro-batch, by number of the task."""
    secret: bytes
    """Known to the processes of this query only."""

    @property
    def load_task(self) -> int:
        """Number of the task that measures the load."""
        return self.settings.topics.aggregator_partitions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge and commit what this task gets, and yield `OUTCOMES`. Columns: those of `ROWS`, and `task`."""
        blocks: defaultdict[int, list[Block]] = defaultdict(list)
        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("task", "kind", "partition", "block"))
            for number, kind, partition, block in zip(*columns, strict=True):
                blocks[number].append((kind, partition, block))
        if not blocks:
            return
        _check_topics(self)
        outcomes: list[tuple[str, bytes]] = []
        for number in sorted(blocks):
            own = blocks.pop(number)  # so that its memory is free while the next ones are merged
            holder = self.holders.get(number)
            merged = state_process.call(holder, self.secret, HOLDER_LIMIT_S, _commit, self, number, own)
            outcomes.append((MERGED, msgspec.json.encode(merged)))
            if number == self.load_task:
                outcomes += [(kind, block) for kind, _, block in own if kind in {PROGRESS, WORK}]
        kinds, values = zip(*outcomes, strict=True)
        yield pa.record_batch([pa.array(kinds), pa.array(values, pa.binary())], ["kind", "block"])

    def watermark(self, blocks: Iterable[Block]) -> WatermarkState:
        """Return the watermark of all source partitions after the micro-batch, with the progress in these blocks."""
        checkpoints = dict(self.checkpoints)
        for progress in (_progress_decoder.decode(block) for kind, _, block in blocks if kind == PROGRESS):
            source = TopicPartition(progress.topic, progress.partition)
            idle = checkpoints[source].idle and not progress.timed_records
            checkpoints[source] = checkpoints[source]._replace(max_time=progress.max_time, idle=idle)
        return watermark_of(checkpoints, self.settings.event_time.lateness_ms)


def _check_topics(task: MergeTask) -> None:
    """Raise BrokerError if a source topic was created again while its records were read."""
    if task.source_ids:
        found = wait_for_topic_ids(task.settings.kafka.client_options(), task.source_ids, RETRY_S)
        stream_start.check_topic_ids(task.source_ids, found)


@dataclass(slots=True)
class _Held:
    """Windows that this process holds as of a micro-batch, and their producer."""

    producer: TransactionalProducer
    merger: PartitionMerger | LoadMerger
    batch: str
    offsets: dict[TopicPartition, int]
    """Offsets in `partials`, which a query does not advance."""
    state_bytes: int = 0

    def close(self) -> None:
        self.producer.close()
        self.producer.consumer.close()


_held: dict[str, _Held] = {}
"""By transactional id. They spare the next micro-batch reading the changelog. Nothing depends on them: the
broker rejects the producer of a partition that another process has opened since."""
_merging = threading.Lock()
"""Held while this process merges, for its own task or for that of another process."""


def _commit(task: MergeTask, number: int, blocks: Sequence[Block]) -> Merged:
    timeout_s = task.settings.transport.transaction_timeout_s
    deadline: float | None = None  # the first attempt may wait for other partitions, and work for longer than RETRY_S
    while True:
        try:
            with _merging:
                began = time.monotonic()
                return _attempt(task, number, blocks)
        except (TransactionAbortedError, UnavailableError) as error:
            now = time.monotonic()
            deadline = deadline or now + RETRY_S
            if now > deadline:
                remedy = (
                    f" (transport.transaction_timeout_s is {timeout_s:g}: raise it)" if now - began > timeout_s else ""
                )
                raise UnreachableError(
                    f"partition {number} cannot be committed for {RETRY_S:g} s: {error}{remedy}"
                ) from None
            log.warning("partition %s is merged again: %s", number, error)
            time.sleep(RETRY_PAUSE_S)


def _attempt(task: MergeTask, number: int, blocks: Sequence[Block]) -> Merged:
    observes = number == task.load_task
    group = task.settings.group(LOAD_STAGE if observes else topology.RESULTS_STAGE)
    transactional_id = stream_start.transactional_id(group, None if observes else number)
    held = _held.pop(transactional_id, None)
    if held is not None and held.batch != task.previous:
        held.close()
        held = None
    if held is None:
        partitions = range(task.load_task) if observes else [number]
        held = _opened(task, partitions, group, transactional_id)
    if held is None:
        return Merged(number)
    try:
        merged = _merge_and_commit(task, number, held, blocks)
    except BaseException as error:
        held.close()
        if isinstance(error, TransactionAbortedError) and error.replace_output:
            # After an outage of the brokers, librdkafka may never return from the next commit of an open producer. The
            # producers of the other partitions would each take a timeout, one after the other.
            while _held:
                _held.popitem()[1].close()
        raise
    _held[transactional_id] = held
    _limit_memory(task.settings.aggregator.max_state_bytes, transactional_id)
    return msgspec.structs.replace(merged, holder=state_process.own_address(task.secret))


def _opened(task: MergeTask, partitions: Iterable[int], group: str, transactional_id: str) -> _Held | None:
    """Restore windows as of the previous micro-batch; None if this one is committed already.

    From then on the broker rejects the transactions of earlier processes with the same id. So what is read after it
    stays true until the commit of this process.
    """
    settings = task.settings
    kafka = settings.kafka
    consumer = offset_consumer(kafka, group)
    producer = TransactionalProducer(kafka, settings.transport, settings.topic, transactional_id)
    with contextlib.ExitStack() as stack:
        stack.callback(consumer.close)
        stack.callback(producer.close)
        producer.attach(consumer)
        producer.open(kafka.connect_timeout_s)
        sources = {partition: TopicPartition(settings.topic("partials"), partition) for partition in partitions}
        committed = producer.committed_offsets(list(sources.values()))
        offsets = {partition: committed.get(source, CommittedOffset(0)) for partition, source in sources.items()}
        batches = {decode_checkpoint(offset.checkpoint).batch or "" for offset in offsets.values()}
        if batches == {task.batch} != {task.previous}:
            return None
        if batches != {task.previous}:
            raise FencedError(
                f"{group} has micro-batch {', '.join(sorted(batches)) or 'none'}, and this query has completed "
                f"{task.previous or 'none'}: another query of pipeline {settings.name} runs"
            )
        checkpoints = {partition: offset.checkpoint for partition, offset in offsets.items()}
        merger = _merger(settings, group, checkpoints)
        stack.pop_all()
    return _Held(producer, merger, task.previous, {sources[p]: offset.offset for p, offset in offsets.items()})


def _merger(settings: PipelineSettings, group: str, checkpoints: Checkpoints) -> PartitionMerger | LoadMerger:
    if group == settings.group(LOAD_STAGE):
        return LoadMerger(settings, checkpoints, partial(restore, settings, ReadProgress()))
    changelog = settings.topic(topology.stage(topology.RESULTS_STAGE).changelog or "")

    def read_changelog(partition: int, keep_value: Callable[[bytes], bool]) -> list[tuple[bytes, bytes]]:
        return read_compacted(settings.kafka, changelog, partition, keep_value)

    return PartitionMerger(settings, checkpoints, read_changelog)


def _merge_and_commit(task: MergeTask, number: int, held: _Held, blocks: Sequence[Block]) -> Merged:
    producer, merger = held.producer, held.merger
    before = producer.sent["aggregates"].records
    for kind, _, block in blocks:
        if kind == RECORDS:
            producer.send(_records_decoder.decode(block))
    if isinstance(merger, LoadMerger):
        merger.set_workers(task.workers)
    partials = ((partition, block) for kind, partition, block in blocks if kind == PARTIALS)
    producer.send(merger.merge(partials, task.watermark(blocks), task.now))
    producer.commit(
        {
            source: CommittedOffset(offset, _metadata(task, merger.checkpoint(source.partition)))
            for source, offset in held.offsets.items()
        }
    )
    held.batch = task.batch
    measures = merger.measures()
    held.state_bytes = int(measures["skewless_state_bytes"])
    open_windows = int(measures.get("skewless_aggregator_open_windows", 0))
    return Merged(number, producer.sent["aggregates"].records - before, open_windows)


def _metadata(task: MergeTask, checkpoint: str) -> str:
    return encode_offset_metadata(with_batch(checkpoint, task.batch), task.schema, task.topic_id)


def _limit_memory(max_bytes: int, newest: str) -> None:
    """Drop other windows while this process holds more than the limit of the state."""
    for transactional_id in [other for other in _held if other != newest]:
        if sum(held.state_bytes for held in _held.values()) <= max_bytes:
            return
        _held.pop(transactional_id).close()
