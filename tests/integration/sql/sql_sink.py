"""A sink without Kafka: its step and its output on a real database, driven as the engine drives them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from helpers.databases import TestDatabase
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.stages.sink.step import SinkStep
from skewless.wire.record import Headers
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

TOPIC = "p.aggregates"
AGGREGATES = ("count", "sum", "mean", "max")
START = 1_767_225_600_000
Item = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


class Progress(GroupProgress):
    """A consumer group that exists nowhere: nothing of the output depends on it."""

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self._cluster_id = cluster

    def report(self, offsets: Mapping[TopicPartition, int]) -> None:
        pass


class Records:
    """A batch of records from an offset on."""

    topic = TOPIC

    def __init__(self, items: Sequence[Item], partition: int, first: int) -> None:
        self.partition = partition
        self.keys, self.values = [key for key, _ in items], [value for _, value in items]
        self.size = sum(len(value or b"") for value in self.values)
        self.offsets = list(range(first, first + len(items)))
        self.timestamps: NDArray[np.int64] = np.zeros(len(items), dtype=np.int64)
        self.headers: list[Headers] = [()] * len(items)


class Sink:
    """One process of a sink."""

    opened: ClassVar[list[Sink]] = []

    def __init__(  # noqa: PLR0913 - by name
        self,
        database: TestDatabase,
        *,
        cluster: str = "cluster",
        name: str = "p",
        value: Mapping[str, Any] | None = None,
        aggregates: Sequence[Any] = AGGREGATES,
        decimals: int = 0,
        **sink: Any,
    ) -> None:
        self.settings = pipeline(
            database, name=name, value={"decimals": decimals, **(value or {})}, aggregates=aggregates, **sink
        )
        assert self.settings.sink is not None
        self.database = database_of(self.settings.sink, self.settings.sink_table())
        self.output = SqlOutput(
            self.database,
            pipeline=name,
            stage="sink",
            topics=[TOPIC],
            create=self.settings.sink.create,
            progress=Progress(cluster),
        )
        self.step = SinkStep(transaction_rows=self.settings.sink.transaction_rows)
        self.offsets: dict[int, int] = {}
        self.opened.append(self)

    def start(self, *partitions: int) -> Sink:
        """Connect, and restore partitions as the engine does."""
        self.output.reopen()
        wanted = [TopicPartition(TOPIC, partition) for partition in partitions or (0,)]
        committed = self.output.committed_offsets(wanted)
        for partition in wanted:
            self.step.assign(partition.partition, None, ())
            self.offsets[partition.partition] = committed[partition].offset if partition in committed else 0
        return self

    def read(self, items: Sequence[Item], partition: int = 0) -> None:
        if items:
            list(self.step.process(Records(items, partition, self.offsets[partition]), 0))
            self.offsets[partition] += len(items)

    def commit(self) -> None:
        self.output.send(self.step.flush(0))
        self.output.commit(
            {
                TopicPartition(TOPIC, number): CommittedOffset(offset, "\n[3]", 0)
                for number, offset in self.offsets.items()
            }
        )

    def store(self, items: Iterable[Item]) -> None:
        self.read(list(items))
        self.commit()


def pipeline(
    database: TestDatabase,
    *,
    name: str = "p",
    value: Mapping[str, Any] | None = None,
    aggregates: Sequence[Any] = AGGREGATES,
    **sink: Any,
) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "name": name,
            "source": {"topic": "source"},
            "splitter": {"format": "json", "key": {"field": "k"}, "value": {"field": "v", **(value or {})}},
            "aggregator": {"aggregates": aggregates},
            "sink": {**database.settings, **sink},
        }
    )


def result(key: str, window: int = START, revision: int = 0, **results: Any) -> Item:
    """Return a record of topic aggregates."""
    record = {"key": key, "window_start": window, "window_end": window + 60_000}
    record |= {"count": 1, "sum": 1, "mean": 1.0, "max": 1, "revision": revision, **results}
    return f"{window}/{key}".encode(), json.dumps(record, ensure_ascii=False).encode()
