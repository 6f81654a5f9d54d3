"""Samples the committed offsets of each stage, and measures how long each partition made no progress."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from skewless.wire.changelog import decode_checkpoint
from skewless.wire.offset_metadata import decode_offset_metadata

EVERY_S = 0.1
OPTIONS = {"log_level": 0, "reconnect.backoff.max.ms": 250, "enable.auto.commit": False}
OF_SOURCE = ("splitter", "router")
"""Stages whose partitions are those of the source: a silent source partition makes no progress there."""

Place = tuple[str, int]
"""Stage and partition of its input. A stage with several inputs has a name for each of them: `stage input`."""


class Progress(threading.Thread):
    """Samples the committed offsets of all stages."""

    def __init__(
        self,
        bootstrap: str,
        groups: Mapping[str, tuple[str, list[TopicPartition]]],
        silent: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        """Sample the stages with these groups and partitions. `silent` returns source partitions without records."""
        super().__init__(name="progress")
        # An admin client would read the offsets of any group, but librdkafka 2.16 crashes where a group has no
        # coordinator yet.
        self._readers = {
            stage: (Consumer({**OPTIONS, "bootstrap.servers": bootstrap, "group.id": group}), partitions)
            for stage, (group, partitions) in groups.items()
        }
        self._all_places = [(stage, at.partition) for stage, (_, partitions) in groups.items() for at in partitions]
        self._silent = silent
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._last: dict[Place, int] = {}
        self._needed: dict[Place, int] = {}
        self._moves: defaultdict[Place, list[float]] = defaultdict(list)

    def run(self) -> None:
        """Sample until the end of the block."""
        while not self._over.wait(EVERY_S):
            for stage, (reader, partitions) in self._readers.items():
                self._sample(stage, reader, partitions)
        for reader, _ in self._readers.values():
            reader.close()

    def _sample(self, stage: str, reader: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            found = reader.committed(partitions, timeout=1.0)
        except KafkaException:
            return
        now = time.monotonic()
        with self._lock:
            for at in found:
                place = (stage, at.partition)
                self._needed[place] = _first_needed(stage, at)
                if at.offset > self._last.get(place, -1):
                    self._last[place] = at.offset
                    self._moves[place].append(now)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def recovered(self, since: float) -> float | None:
        """Seconds until every partition had made progress after this time; None while one has not."""
        if self.waiting(since):
            return None
        with self._lock:
            firsts = [next((at for at in moves if at > since), since) for moves in self._moves.values()]
        return max(firsts, default=since) - since

    def moved(self, stage: str, since: float) -> bool:
        """Return whether a stage has committed anything after this time."""
        return any(at > since for moves in self.moves(stage) for at in moves[-1:])

    def waiting(self, since: float) -> list[Place]:
        """Return the partitions that have input and made no progress after this time."""
        places = self._places()
        with self._lock:
            return [place for place in places if not any(at > since for at in self._moves[place][-1:])]

    def behind(self, stage: str, offsets: Mapping[int, int]) -> list[Place]:
        """Return the partitions of a stage that have input and are not committed up to these offsets."""
        places = [place for place in self._places() if place[0] == stage]
        with self._lock:
            return [place for place in places if self._last.get(place, -1) < offsets[place[1]]]

    def needed(self, stage: str) -> dict[int, int]:
        """Return the first offset that a stage may read after a restart, for every partition with a committed one."""
        with self._lock:
            return {partition: self._needed[of, partition] for of, partition in self._last if of == stage}

    def _places(self) -> list[Place]:
        silent = self._silent()
        return [place for place in self._all_places if place[0] not in OF_SOURCE or place[1] not in silent]

    def moves(self, stage: str) -> list[list[float]]:
        """Return the times at which each partition of a stage, in their order, made progress."""
        with self._lock:
            return [self._moves[place].copy() for place in self._all_places if place[0] == stage]

    def pauses(self, stage: str, begin: float, end: float) -> list[float]:
        """Longest time in s within a span without progress, for each partition of a stage."""
        with self._lock:
            moves = [moves for (of, _), moves in self._moves.items() if of.partition(" ")[0] == stage]
        pauses = []
        for times in moves:
            within = [begin, *(at for at in times if begin < at < end), end]
            pauses.append(max(b - a for a, b in itertools.pairwise(within)))
        return pauses


def _first_needed(stage: str, at: TopicPartition) -> int:
    """Return the offset of a checkpoint from which the stage reads again. Only the observer reads before its offset."""
    offset: int = at.offset
    checkpoint = decode_offset_metadata(at.metadata).checkpoint
    if stage == "observer" and (unsaved := decode_checkpoint(checkpoint).unsaved):
        offset = min(offset, unsaved[0])
    return offset
