"""Resumes a run of `skewless produce`: an interrupted run leaves the beginning of every partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from skewless.errors import ConfigurationError
from skewless.kafka.consumer.offsets import OffsetReader, newest_offsets
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.kafka.producer.bulk import RUN, BulkProducer
from skewless.kafka.settings import KafkaSettings
from skewless.lab.datasets import RecordBatch

Counts = NDArray[np.int64]


def existing_records(kafka: KafkaSettings, topic: str, batches: Iterable[RecordBatch]) -> Counts:
    """Return the number of records by partition. Raises ConfigurationError if a last record is not that of the run."""
    # `produce` writes without transactions, so the end offset of a partition is the number of its records.
    retained = OffsetReader(kafka).ranges(topic)
    counts = [end for _, (_, end) in sorted(retained.items())]
    last_records = read_ranges(kafka, topic, newest_offsets(retained, 1))
    last_values = {partition: messages[-1].value() for partition, messages in last_records}
    partitions = {_index(partition, end - 1, len(counts)): partition for partition, end in enumerate(counts) if end}
    run = enumerate(chain.from_iterable(batch.values for batch in batches))
    expected = {partitions[i]: value for i, value in islice(run, max(partitions, default=-1) + 1) if i in partitions}
    for partition in sorted(partitions.values()):
        if partition not in expected or expected[partition] != last_values.get(partition):
            raise ConfigurationError(
                f"--resume: topic {topic} has records of another run (partition {partition}, offset "
                f"{counts[partition] - 1}): give the same data set and options as in the first run, or use an empty "
                "topic"
            )
    return np.array(counts, np.int64)


def _index(partition: int, offset: int, partitions: int) -> int:
    """Return the index in the run of the record that `BulkProducer` writes to this offset."""
    return (offset // RUN * partitions + partition) * RUN + offset % RUN


def missing_records(batches: Iterable[RecordBatch], producer: BulkProducer, counts: Counts) -> Iterator[RecordBatch]:
    """Yield the records that the topic lacks, and set the producer to the index of each yielded batch."""
    first = 0
    for batch in batches:
        turns, places = np.divmod(np.arange(first, first + len(batch.values)), RUN)
        missing = turns // len(counts) * RUN + places >= counts[turns % len(counts)]
        starts, stops = np.flatnonzero(np.diff(missing, prepend=False, append=False)).reshape(-1, 2).T.tolist()
        for start, stop in zip(starts, stops, strict=True):
            producer.taken = first + start
            yield RecordBatch(batch.values[start:stop], batch.times[start:stop])
        first += len(batch.values)
