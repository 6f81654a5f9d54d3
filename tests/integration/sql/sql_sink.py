"""A sink without Kafka: its step and its output on a real database, driven as the engine drives them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from helpers.databases import TestDatabase
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.step import Step
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.sql.table import ResultTable
from skewless.stages.flusher.step import FlusherRules, FlusherStep
from skewless.stages.sink.step import SinkStep
from skewless.stages.table_settings import added_results
from skewless.wire.columns import write_table
from skewless.wire.offset_metadata import split_offset_metadata
from skewless.wire.partials import PARTIALS
from skewless.wire.record import Headers, OutputRecord
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

TOPIC = "p.aggregates"
KEY: Mapping[str, Any] = {"field": "k"}
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
        self.offsets = list(range(first, first + len(items)))
        self.timestamps: NDArray[np.int64] = np.zeros(len(items), dtype=np.int64)
        self.headers: list[Headers] = [()] * len(items)
        self.size = sum(len(value or b"") for value in self.values)


class Sink:
    """One process of a sink."""

    opened: ClassVar[list[Sink]] = []
    stage: ClassVar[str] = "sink"
    topic: ClassVar[str] = TOPIC
    mode: ClassVar[str] = "replace"

    def __init__(  # noqa: PLR0913 - by name
        self,
        database: TestDatabase,
        *,
        cluster: str = "cluster",
        name: str = "p",
        key: Mapping[str, Any] = KEY,
        value: Mapping[str, Any] | None = None,
        values: Mapping[str, Any] | None = None,
        aggregates: Sequence[Any] = AGGREGATES,
        decimals: int = 0,
        **sink: Any,
    ) -> None:
        self.settings = pipeline(
            database,
            name=name,
            key=key,
            value=None if values else {"decimals": decimals, **(value or {})},
            values=values,
            aggregates=aggregates,
            **{"mode": self.mode, **sink},
        )
        assert self.settings.sink is not None
        self.database = database_of(self.settings.sink, self.table())
        self.output = SqlOutput(
            self.database,
            pipeline=name,
            stage=self.stage,
            topics=[self.topic],
            create=self.settings.sink.create,
            progress=Progress(cluster),
        )
        self.step: Step = self.new_step()
        self.offsets: dict[int, int] = {}
        self.opened.append(self)

    def table(self) -> ResultTable:
        return self.settings.sink_table()

    def new_step(self) -> Step:
        assert self.settings.sink is not None
        return SinkStep(transaction_rows=self.settings.sink.transaction_rows)

    def start(self, *partitions: int) -> Sink:
        """Connect, and restore partitions as the engine does."""
        self.output.connect()
        wanted = [TopicPartition(self.topic, partition) for partition in partitions or (0,)]
        committed = self.output.committed_offsets(wanted)
        for partition in wanted:
            stored = committed.get(partition)
            checkpoint = split_offset_metadata(stored.metadata)[0] if stored else None
            self.step.assign(partition.partition, checkpoint or None, ())
            self.offsets[partition.partition] = stored.offset if stored else 0
        return self

    def read(self, items: Sequence[Item], partition: int = 0) -> None:
        if items:
            list(self.step.process(Records(items, partition, self.offsets[partition]), 0))
            self.offsets[partition] += len(items)

    def commit(self) -> None:
        self.output.send(self.step.flush(0))
        self.output.commit(
            {
                TopicPartition(self.topic, number): CommittedOffset(offset, f"{self.step.checkpoint(number)}\n[3]", 0)
                for number, offset in self.offsets.items()
            }
        )

    def store(self, items: Iterable[Item]) -> None:
        self.read(list(items))
        self.commit()


class Flusher(Sink):
    """One process of a flusher."""

    stage = "flusher"
    topic = "p.partials"
    mode = "merge"

    def new_step(self) -> Step:
        assert self.settings.sink is not None
        results = added_results(self.settings.results)
        rows = self.settings.sink.transaction_rows
        rules = FlusherRules(results, self.settings.aggregator.windows, rows, self.settings.splitter.key.parts)
        return FlusherStep(rules, worker_partitions=1)

    def add(self, *rows: Mapping[str, Any]) -> None:
        """Read and commit a record of partials."""
        self.read_partials(*rows)
        self.commit()

    def read_partials(self, *rows: Mapping[str, Any], partition: int = 0) -> None:
        batch = InMemoryBatch(partition, [partials(*rows)], [self.offsets[partition]])
        list(self.step.process(batch, 0))
        self.offsets[partition] += 1


def partials(*rows: Mapping[str, Any]) -> OutputRecord:
    """Return a record of topic partials. A row has `pane`, `key` and partial columns."""
    table = pa.Table.from_pylist([{"worker": 0, **row} for row in rows])
    names = table.schema.names
    types = {"key": pa.string(), "worker": pa.int32()} | {
        name: pa.decimal128(38) for name in names if name.startswith("sum")
    }
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in names])
    return OutputRecord("partials", write_table(table.cast(schema)), headers=internal_headers(PARTIALS, {}))


def pipeline(  # noqa: PLR0913 - by name
    database: TestDatabase,
    *,
    name: str = "p",
    key: Mapping[str, Any] = KEY,
    value: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    aggregates: Sequence[Any] = AGGREGATES,
    **sink: Any,
) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "name": name,
            "source": {"topic": "source"},
            "splitter": {"format": "json", "key": key}
            | ({"values": values} if values else {"value": {"field": "v", **(value or {})}}),
            "aggregator": {"aggregates": aggregates} | ({"top": {"n": 3, "by": "sum"}} if "top_table" in sink else {}),
            "sink": {**database.settings, **sink},
        }
    )


def result(key: str, window: int = START, revision: int = 0, **results: Any) -> Item:
    """Return a record of topic aggregates."""
    record = {"key": key, "window_start": window, "window_end": window + 60_000}
    record |= {"count": 1, "sum": 1, "mean": 1.0, "max": 1, "revision": revision, **results}
    return f"{window}/{key}".encode(), json.dumps(record, ensure_ascii=False).encode()
