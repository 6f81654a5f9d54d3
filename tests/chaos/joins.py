"""Two topics that a pipeline joins under faults: their records, and the comparison with the definition of a join."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from chaos.scenario import Repartition
from helpers.join_oracle import Event
from helpers.joined import JoinTopics, traffic
from helpers.kafka import Pipeline
from skewless.algorithms.join.window_join import Side

SHARE = 0.25
"""Left records per record of the source."""
PARTITIONS = {"never": dict.fromkeys(Side, 3), "always": {Side.LEFT: 3, Side.RIGHT: 2}}

JoinEvent = tuple[Side, Event]


class JoinSource:
    """The topics of a join, and a producer of their records."""

    def __init__(self, bootstrap: str, repartition: Repartition) -> None:
        self._repartition = repartition
        self._topics = JoinTopics(bootstrap, PARTITIONS[repartition])
        self.section = self._topics.section(repartition=repartition)
        """Section `join` of the pipeline."""

    def send(self, records: Iterable[JoinEvent]) -> None:
        """Write records and wait for their delivery."""
        for side, event in records:
            self._topics.send(side, [event])
        self._topics.flush()

    def failures(self, pipeline: Pipeline) -> list[str]:
        """List the differences between the outputs of a drained join and the definition; empty if it is exact."""
        is_repartitioned = self._repartition == "always"
        compare = self._topics.repartitioned_differences if is_repartitioned else self._topics.differences
        return [f"join: {kind}: {outcomes}" for kind, outcomes in compare(pipeline.settings).items()]


def events(seed: int, count: int) -> Iterator[JoinEvent]:
    """Make records of both sides for so many left records, in the order of their times."""
    logs = traffic(count, seed)
    sides = ([(side, event) for event in log] for side, log in logs.items())
    return heapq.merge(*sides, key=lambda record: record[1].time)
