"""`skewless produce --resume`: what of a run is in the topic already, and what is missing.

A run's record i has its place: the partition of its turn, and the number there. A partition is written in order, so
what is there of a run, however it ended, is the beginning of every partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skewless.datasets import Chunk
from skewless.errors import ConfigurationError
from skewless.transport.reader import read_latest
from skewless.transport.sender import RUN, Sender
from skewless.transport.settings import KafkaSettings


@dataclass(frozen=True)
class Present:
    """What a topic's partitions hold: numbers of records, and the last record's value of each (None: no record)."""

    counts: NDArray[np.int64]
    last: tuple[bytes | None, ...]

    @property
    def total(self) -> int:
        """All records of the topic."""
        return int(self.counts.sum())


def read_present(kafka: KafkaSettings, topic: str, partitions: int) -> Present:
    """Read the topic to its end. Raises ConfigurationError when it holds records that `produce` cannot have written."""
    found = [_read(kafka, topic, partition) for partition in range(partitions)]
    return Present(np.array([count for count, _ in found], np.int64), tuple(last for _, last in found))


def _read(kafka: KafkaSettings, topic: str, partition: int) -> tuple[int, bytes | None]:
    count = 0

    def seen(_: bytes) -> bool:
        nonlocal count
        count += 1
        return True

    # `produce` writes records without a key: of that one "key", the latest value is the partition's last record.
    latest = read_latest(kafka, topic, partition, seen)
    if len(latest) > 1:
        raise _foreign(topic, f"partition {partition} holds records with keys")
    return count, latest[0][1] if latest else None


def check(chunks: Iterable[Chunk], present: Present, topic: str) -> None:
    """Hold the last record of every partition to the run; raises ConfigurationError when the topic has another's."""
    unseen = {partition for partition, count in enumerate(present.counts) if count}
    ends, first = present.counts - 1, 0
    for chunk in chunks:
        if not unseen:
            return
        partitions, places = _turns(first, len(chunk.values), len(ends))
        for at in np.flatnonzero(places == ends[partitions]).tolist():
            partition = int(partitions[at])
            if chunk.values[at] != present.last[partition]:
                raise _foreign(topic, f"the last record of partition {partition} is not the run's")
            unseen.discard(partition)
        first += len(chunk.values)
    if unseen:
        raise _foreign(topic, f"partition {min(unseen)} holds more records than the run has")


def rest(chunks: Iterable[Chunk], sender: Sender, present: Present) -> Iterator[Chunk]:
    """Give what is missing; before each part the sender's turn is moved on to it."""
    first = 0
    for chunk in chunks:
        partitions, places = _turns(first, len(chunk.values), len(present.counts))
        missing = np.concatenate(([False], places >= present.counts[partitions], [False]))
        starts, stops = np.flatnonzero(missing[1:] != missing[:-1]).reshape(-1, 2).T.tolist()
        for start, stop in zip(starts, stops, strict=True):
            sender.taken = first + start
            yield Chunk(chunk.values[start:stop], chunk.times[start:stop])
        first += len(chunk.values)


def _turns(first: int, count: int, partitions: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give partition, and place in it, of `count` records from number `first` on, as `Sender` writes them."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    turns = numbers // RUN
    return turns % partitions, turns // partitions * RUN + numbers % RUN


def _foreign(topic: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"--resume: topic {topic} holds other records than this run's ({reason}): give the same data set and options "
        "as before, or take an empty topic"
    )
