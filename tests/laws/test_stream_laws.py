"""The tasks of `skewless stream` give the results of a plain count, however the records are cut into micro-batches."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kafka import BASE, START_MS, Record, truth
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState
from skewless.config.pipeline_settings import PipelineSettings
from skewless.spark.stream_tasks import (
    PARTIALS,
    PROGRESS,
    RECORDS,
    PartitionMerger,
    SourceProgress,
    SplitTask,
)
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

LATENESS_S = 5
PARTITIONS = (0, 1)
WINDOW_MS = 60_000
NOW = START_MS + 86_400_000

entries = st.tuples(
    st.sampled_from(PARTITIONS), st.sampled_from(["a", "b", "c"]), st.integers(-9, 9), st.integers(0, 300_000)
)
logs = st.lists(entries, min_size=1, max_size=60)
cuts = st.lists(st.integers(0, 60), max_size=5)


def pipeline(emit: str) -> PipelineSettings:
    return PipelineSettings.model_validate(
        BASE
        | {
            "name": "law",
            "source": {"topic": "source"},
            "event_time": {"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
            "aggregator": {"aggregates": ["count", "sum"], "emit": emit, "closed_window_retention_s": 10**6},
        }
    )


def records_of(log: Iterable[tuple[int, str, int, int]]) -> list[Record]:
    offsets: dict[int, int] = defaultdict(int)
    found = []
    for partition, key, value, time in log:
        document = json.dumps({"key": key, "value": value, "time": START_MS + time}).encode()
        found.append(Record(partition, offsets[partition], NOW, None, document, {}))
        offsets[partition] += 1
    return found


def as_columns(records: Iterable[Record], now: int = NOW) -> pa.RecordBatch:
    rows = [
        {
            "topic": "source", "partition": record.partition, "offset": record.offset, "timestamp": record.timestamp,
            "key": record.key, "value": record.value, "now": now,
        }
        for record in records
    ]  # fmt: skip
    schema = pa.schema(
        [
            ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64()),
            ("key", pa.binary()), ("value", pa.binary()), ("now", pa.int64()),
        ]
    )  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=schema)


@dataclass
class Query:
    """The driver of a query, and what its tasks have written: everything without Spark and without Kafka."""

    settings: PipelineSettings
    max_times: dict[TopicPartition, int | None]
    written: list[OutputRecord] = field(default_factory=list)
    changelogs: Mapping[int, dict[bytes, bytes]] = field(default_factory=lambda: defaultdict(dict))
    checkpoints: dict[int, str | None] = field(default_factory=dict)
    mergers: dict[int, PartitionMerger] = field(default_factory=dict)

    def split(self, records: Iterable[Record]) -> list[tuple[str, int, bytes]]:
        """Read each partition in a task of its own, and return the rows."""
        by_partition: defaultdict[int, list[Record]] = defaultdict(list)
        for record in records:
            by_partition[record.partition].append(record)
        counts = {"source": len(PARTITIONS), self.settings.topic("tuples"): len(PARTITIONS)}
        task = SplitTask(self.settings, counts, dict(self.max_times))
        rows: list[tuple[str, int, bytes]] = []
        for own in by_partition.values():
            for batch in task([as_columns(own[:3]), *([as_columns(own[3:])] if own[3:] else [])]):
                rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return rows

    def run(self, records: Iterable[Record], watermark: WatermarkState | None = None, *, restore: bool = False) -> None:
        """Run a micro-batch. `restore`: its tasks read the changelog, because no process has the windows."""
        rows = self.split(records)
        for block in (block for kind, _, block in rows if kind == PROGRESS):
            progress = msgspec.json.decode(block, type=SourceProgress)
            self.max_times[TopicPartition(progress.topic, progress.partition)] = progress.max_time
        times = [time for time in self.max_times.values() if time is not None]
        known = min(times) - LATENESS_S * 1000 if len(times) == len(self.max_times) else None
        for partition in range(self.settings.topics.aggregator_partitions):
            if restore or partition not in self.mergers:
                self.mergers[partition] = self.merger(partition)
            blocks = [block for kind, at, block in rows if (kind, at) == (PARTIALS, partition)]
            state = watermark or WatermarkState(known)
            for output in self.mergers[partition].merge(blocks, state, NOW):
                if output.topic != "aggregator-changelog":
                    self.written.append(output)
                elif output.value is None:
                    self.changelogs[partition].pop(output.key or b"", None)
                else:
                    self.changelogs[partition][output.key or b""] = output.value
            self.checkpoints[partition] = self.mergers[partition].checkpoint()
        for _, _, block in (row for row in rows if row[0] == RECORDS):
            self.written += msgspec.msgpack.decode(block, type=list[OutputRecord])

    def merger(self, partition: int) -> PartitionMerger:
        def read(keep_value: Any) -> list[tuple[bytes, bytes]]:
            changelog = self.changelogs[partition]
            return [(key, value if keep_value(key) else b"") for key, value in changelog.items()]

        return PartitionMerger(self.settings, partition, self.checkpoints.get(partition), read)

    def values(self, topic: str) -> Iterator[dict[str, Any]]:
        return (msgspec.json.decode(output.value or b"") for output in self.written if output.topic == topic)


def new_query(emit: str) -> Query:
    return Query(pipeline(emit), {TopicPartition("source", partition): None for partition in PARTITIONS})


@settings(max_examples=settings().max_examples // 2)
@given(log=logs, cuts=cuts, emit=st.sampled_from(["updates", "final"]), restores=st.lists(st.booleans(), min_size=7))
def test_stream_tasks_any_micro_batches_give_the_plain_count(
    log: list[tuple[int, str, int, int]], cuts: list[int], emit: str, restores: list[bool]
) -> None:
    records, query = records_of(log), new_query(emit)
    bounds = [0, *sorted(cuts), len(records)]
    for number, (first, end) in enumerate(itertools.pairwise(bounds)):
        query.run(records[first:end], restore=restores[number])
    query.run([], WatermarkState(MAX_WATERMARK))
    expected = truth(records, lateness_ms=LATENESS_S * 1000)
    last: dict[tuple[int, str], dict[str, Any]] = {}
    for entry in query.values("aggregates"):
        at = (entry["window_start"], entry["key"])
        assert entry["revision"] == (last[at]["revision"] + 1 if at in last else 0)
        last[at] = entry
    assert {at: (entry["count"], entry["sum"]) for at, entry in last.items()} == {
        at: (count, expected.sums[at]) for at, count in expected.counts.items()
    }
    late = {(entry["partition"], entry["offset"]): entry for entry in query.values("late")}
    assert late == expected.late
    assert emit == "updates" or all(entry["revision"] == 0 for entry in last.values())


@settings(max_examples=settings().max_examples // 2)
@given(log=logs)
def test_split_task_repeated_yields_the_same_rows(log: list[tuple[int, str, int, int]]) -> None:
    records, query = records_of(log), new_query("updates")

    def rows() -> list[tuple[str, int, bytes]]:
        return [row for row in query.split(records) if row[0] != PROGRESS]  # has the time that the task spent

    assert rows() == rows()
