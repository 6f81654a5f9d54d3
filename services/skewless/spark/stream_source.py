"""The records of a micro-batch of `skewless stream`. Spark plans their offsets, and its Python tasks read them.

Spark's source for Kafka decides which offsets a micro-batch has, and stores them in its checkpoint before the first
task starts. Its own tasks read nothing, because each record would pass from Java to Python.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from skewless.engine.message_batch import MessageBatch
from skewless.kafka.consumer.topic_reader import ReadAhead, Records, read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.spark.stream_tasks import SplitTask
from skewless.wire.topic_partition import TopicPartition

BATCH_RECORDS = 5_000
BATCH_BYTES = 4 * 2**20
"""Records of a source partition that are processed at once, and the bytes of their values."""
READ_AHEAD = ReadAhead(queue_bytes=2**25, queued_records=20_000)


class SourceRange(NamedTuple):
    """Offsets of a source partition in a micro-batch."""

    source: TopicPartition
    begin: int
    end: int
    """The offset after the last one."""


def planned(spark: SparkSession, checkpoint: str, number: int) -> tuple[int, Mapping[TopicPartition, int]]:
    """Return the wall-clock time of a micro-batch in ms, and the offset after the last one by source partition.

    Both are in Spark's checkpoint.
    """
    # Spark's function for a micro-batch gets its records, and not their offsets.
    context = spark.sparkContext
    java, hadoop = context._jvm, context._jsc.hadoopConfiguration()  # noqa: SLF001
    path = java.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{number}")
    stream = path.getFileSystem(hadoop).open(path)
    try:
        text: str = java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    _, metadata, offsets = text.splitlines()
    ends = {
        TopicPartition(topic, int(partition)): end
        for topic, of_topic in json.loads(offsets).items()
        for partition, end in of_topic.items()
    }
    return json.loads(metadata)["batchTimestampMs"], ends


def spread(ranges: Iterable[SourceRange], cores: int) -> list[list[SourceRange]]:
    """Spread ranges over a task per core, so that each task has about as many offsets as the others."""
    sized = sorted(ranges, key=lambda each: each.begin - each.end)
    tasks: list[tuple[int, int, list[SourceRange]]] = [(0, number, []) for number in range(min(len(sized), cores))]
    for each in sized:
        size, number, own = tasks[0]
        heapq.heapreplace(tasks, (size + each.end - each.begin, number, [*own, each]))
    return [own for _, _, own in tasks]


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads the records of a micro-batch, and turns them into partials. Spark sends it to the tasks."""

    split: SplitTask
    ranges: Sequence[Sequence[SourceRange]]
    """By number of the task."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `ROWS`. Column: the number of the task, as `id`."""
        for batch in batches:
            for number in batch["id"].to_pylist():
                if not number:
                    yield from self.split.ticks()
                yield from self.split.split(read(self.split.settings.kafka, self.ranges[number]))


def read(kafka: KafkaSettings, ranges: Iterable[SourceRange]) -> Iterator[MessageBatch]:
    """Yield the committed records of the ranges. Raises BrokerError if some were deleted.

    The batches of a source partition are the same in each repetition. Their order among those of others is not.
    """
    by_topic: defaultdict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for (topic, partition), begin, end in ranges:
        by_topic[topic][partition] = begin, end
    for topic, bounds in by_topic.items():
        messages: defaultdict[int, Records] = defaultdict(list)
        sizes: defaultdict[int, int] = defaultdict(int)
        for partition, polled in read_ranges(kafka, topic, bounds, READ_AHEAD, skip_deleted=False):
            own, source = messages[partition], TopicPartition(topic, partition)
            for message in polled:
                own.append(message)
                sizes[partition] += len(message.value() or b"")
                if len(own) == BATCH_RECORDS or sizes[partition] >= BATCH_BYTES:
                    yield MessageBatch(source, 0, own)
                    own = messages[partition] = []
                    sizes[partition] = 0
        for partition, own in sorted(messages.items()):
            if own:
                yield MessageBatch(TopicPartition(topic, partition), 0, own)
