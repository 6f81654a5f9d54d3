"""Merges the partials of a micro-batch and commits the results: one transaction per partition of `aggregates`.

The transaction has the results, the changelog, late tuples and dead letters, and the offset of the partition of
`partials`, whose checkpoint names the micro-batch. A task reads this checkpoint before it merges. So a micro-batch that
Spark repeats is merged once: a task of a committed micro-batch writes nothing. See docs/explanation/exactness.md.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from skewless import topology
from skewless.algorithms.watermark import WatermarkState
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import FencedError, TransactionAbortedError, UnavailableError, UnreachableError
from skewless.kafka.consumer.offsets import offset_consumer
from skewless.kafka.consumer.topic_reader import read_compacted
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.spark import stream_start
from skewless.spark.stream_tasks import PARTIALS, RECORDS, PartitionMerger
from skewless.wire.changelog import decode_checkpoint, with_batch
from skewless.wire.offset_metadata import encode_offset_metadata
from skewless.wire.record import OutputRecord
from skewless.wire.state_schema import StateSchema
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

log = logging.getLogger(__name__)

TICK = "tick"
"""Kind of the row that each partition gets, with or without partials."""
MERGED = "partition int, results bigint, open_windows bigint, keys bigint"
RETRY_S = 60.0
"""Time for which a task repeats a transaction that fails although a repetition may succeed."""
RETRY_PAUSE_S = 0.5

_records_decoder = msgspec.msgpack.Decoder(list[OutputRecord])


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges and commits a micro-batch. Spark sends it to the tasks."""

    settings: PipelineSettings
    schema: StateSchema
    topic_id: int | None
    """That of topic `partials`; None if unknown."""
    watermark: WatermarkState
    """Watermark of all source partitions after the micro-batch."""
    now: int
    previous: str
    """Micro-batch that was complete before."""
    batch: str
    """The micro-batch; the previous one if there is none, and only event time has advanced."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge and commit the partitions of this task. Input rows: `ROWS`, with one of kind TICK per partition."""
        blocks: defaultdict[int, list[tuple[str, bytes]]] = defaultdict(list)
        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("kind", "partition", "block"))
            for kind, partition, block in zip(*columns, strict=True):
                blocks[partition].append((kind, block))
        rows = [(partition, *_commit(self, partition, own)) for partition, own in sorted(blocks.items())]
        if rows:
            names = ("partition", "results", "open_windows", "keys")
            types = (pa.int32(), pa.int64(), pa.int64(), pa.int64())
            columns = (pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types, strict=True))
            yield pa.record_batch(list(columns), names)


@dataclass(slots=True)
class _HeldPartition:
    """A partition that this process has merged last: its windows as of a micro-batch, and its producer."""

    producer: TransactionalProducer
    merger: PartitionMerger
    batch: str
    offset: int
    state_bytes: int = 0

    def close(self) -> None:
        self.producer.close()
        self.producer.consumer.close()


_held: dict[str, _HeldPartition] = {}
"""Partitions by transactional id. They spare the next micro-batch reading the changelog. Nothing depends on them: the
broker rejects the producer of a partition that another process has opened since."""

Merged = tuple[int, int, int]
"""Numbers of results, of open windows and of their keys."""
NOTHING: Merged = (0, 0, 0)


def _commit(task: MergeTask, partition: int, blocks: Sequence[tuple[str, bytes]]) -> Merged:
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            return _attempt(task, partition, blocks)
        except (TransactionAbortedError, UnavailableError) as error:
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"partition {partition} cannot be committed for {RETRY_S:g} s: {error}"
                ) from None
            log.warning("partition %s is merged again: %s", partition, error)
            time.sleep(RETRY_PAUSE_S)


def _attempt(task: MergeTask, partition: int, blocks: Sequence[tuple[str, bytes]]) -> Merged:
    transactional_id = stream_start.transactional_id(task.settings.group(topology.RESULTS_STAGE), partition)
    held = _held.pop(transactional_id, None)
    if held is not None and held.batch != task.previous:
        held.close()
        held = None
    if held is None:
        held = _opened(task, partition, transactional_id)
    if held is None:
        return NOTHING
    try:
        merged = _merge_and_commit(task, partition, held, blocks)
    except BaseException:
        held.close()
        raise
    _held[transactional_id] = held
    _limit_memory(task.settings.aggregator.max_state_bytes, transactional_id)
    return merged


def _opened(task: MergeTask, partition: int, transactional_id: str) -> _HeldPartition | None:
    """Restore a partition as of the previous micro-batch; None if this one is committed already.

    From then on the broker rejects the transactions of earlier processes with the same id. So what is read after it
    stays true until the commit of this process.
    """
    settings = task.settings
    kafka = settings.kafka
    consumer = offset_consumer(kafka, settings.group(topology.RESULTS_STAGE))
    producer = TransactionalProducer(kafka, settings.transport, settings.topic, transactional_id)
    with contextlib.ExitStack() as stack:
        stack.callback(consumer.close)
        stack.callback(producer.close)
        producer.attach(consumer)
        producer.open(kafka.connect_timeout_s)
        source = TopicPartition(settings.topic("partials"), partition)
        committed = producer.committed_offsets([source]).get(source, CommittedOffset(0))
        batch = decode_checkpoint(committed.checkpoint).batch or ""
        if batch == task.batch != task.previous:
            return None
        if batch != task.previous:
            raise FencedError(
                f"partition {partition} has micro-batch {batch or 'none'}, and this query has completed "
                f"{task.previous or 'none'}: another query of pipeline {settings.name} runs"
            )

        def read_changelog(keep_value: Callable[[bytes], bool]) -> list[tuple[bytes, bytes]]:
            return read_compacted(kafka, settings.topic("aggregator-changelog"), partition, keep_value)

        merger = PartitionMerger(settings, partition, committed.checkpoint, read_changelog)
        stack.pop_all()
    return _HeldPartition(producer, merger, batch, committed.offset)


def _merge_and_commit(
    task: MergeTask, partition: int, held: _HeldPartition, blocks: Sequence[tuple[str, bytes]]
) -> Merged:
    producer, merger = held.producer, held.merger
    before = producer.sent["aggregates"].records
    for kind, block in blocks:
        if kind == RECORDS:
            producer.send(_records_decoder.decode(block))
    producer.send(merger.merge((block for kind, block in blocks if kind == PARTIALS), task.watermark, task.now))
    checkpoint = with_batch(merger.checkpoint(), task.batch)
    metadata = encode_offset_metadata(checkpoint, task.schema, task.topic_id)
    source = TopicPartition(task.settings.topic("partials"), partition)
    producer.commit({source: CommittedOffset(held.offset, metadata)})
    held.batch = task.batch
    measures = merger.measures()
    held.state_bytes = int(measures["skewless_state_bytes"])
    open_windows, keys = measures["skewless_aggregator_open_windows"], measures["skewless_aggregator_keys"]
    return producer.sent["aggregates"].records - before, int(open_windows), int(keys)


def _limit_memory(max_bytes: int, newest: str) -> None:
    """Drop other partitions while this process holds more than the limit of the state."""
    for transactional_id in [other for other in _held if other != newest]:
        if sum(held.state_bytes for held in _held.values()) <= max_bytes:
            return
        _held.pop(transactional_id).close()
