"""The tasks of `skewless stream` give the results of a plain count, however the records are cut into micro-batches."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kafka import BASE, START_MS, Record, truth
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.spark.stream_merge import watermark_of
from skewless.spark.stream_tasks import (
    PARTIALS,
    PROGRESS,
    RECORDS,
    TUPLES,
    WORK,
    SourceProgress,
    SplitTask,
    WorkTask,
)
from skewless.spark.stream_windows import LoadMerger, PartitionMerger, WindowMerger
from skewless.stages.splitter.checkpoint import Checkpoint
from skewless.wire.changelog import decode_checkpoint
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


def pipeline(emit: str, *, costs: bool = False) -> PipelineSettings:
    """`costs`: each tuple takes a nanosecond, so tasks of workers aggregate the tuples."""
    return PipelineSettings.model_validate(
        BASE
        | {
            "name": "law",
            "source": {"topic": "source"},
            "event_time": {"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
            "worker": {"cost": {"cycle": 1_000_000 if costs else 0}},
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


def as_batch(records: Sequence[Record]) -> MessageBatch:
    source = TopicPartition("source", records[0].partition)
    outputs = [OutputRecord("source", record.value, record.key) for record in records]
    return MessageBatch.of_outputs(source, outputs, NOW, records[0].offset)


@dataclass
class Query:
    """The driver of a query, and what its tasks have written: everything without Spark and without Kafka."""

    settings: PipelineSettings
    max_times: dict[TopicPartition, int | None]
    written: list[OutputRecord] = field(default_factory=list)
    changelogs: Mapping[tuple[str, int], dict[bytes, bytes]] = field(default_factory=lambda: defaultdict(dict))
    checkpoints: dict[tuple[str, int], str | None] = field(default_factory=dict)
    mergers: dict[tuple[str, int], WindowMerger] = field(default_factory=dict)

    def split(self, records: Iterable[Record]) -> list[tuple[str, int, bytes]]:
        """Read each partition in a task of its own, and return the rows."""
        by_partition: defaultdict[int, list[Record]] = defaultdict(list)
        for record in records:
            by_partition[record.partition].append(record)
        counts = {"source": len(PARTITIONS), self.settings.topic("tuples"): len(PARTITIONS)}
        task = SplitTask(self.settings, counts, dict(self.max_times), NOW)
        rows: list[tuple[str, int, bytes]] = []
        for own in by_partition.values():
            for batch in task.split([as_batch(own[:3]), *([as_batch(own[3:])] if own[3:] else [])]):
                rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return rows if self.settings.worker.cost.is_free else self.work(rows, counts)

    def work(self, rows: list[tuple[str, int, bytes]], counts: Mapping[str, int]) -> list[tuple[str, int, bytes]]:
        """Aggregate the tuples of each worker in a task of its own, which the other rows pass through."""
        by_worker: defaultdict[int, list[tuple[str, int, bytes]]] = defaultdict(list)
        for row in rows:
            by_worker[row[1] % self.settings.router.workers].append(row)
        worked: list[tuple[str, int, bytes]] = []
        for own in by_worker.values():
            schema = pa.schema([("kind", pa.string()), ("partition", pa.int32()), ("block", pa.binary())])
            columns = [pa.array(column, of.type) for column, of in zip(zip(*own, strict=True), schema, strict=True)]
            for batch in WorkTask(self.settings, counts)([pa.record_batch(columns, schema=schema)]):
                worked += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        assert not any(kind == TUPLES for kind, _, _ in worked)
        return worked

    def run(self, records: Iterable[Record], watermark: WatermarkState | None = None, *, restore: bool = False) -> None:
        """Run a micro-batch. `restore`: its tasks read the changelog, because no process has the windows."""
        rows = self.split(records)
        for block in (block for kind, _, block in rows if kind == PROGRESS):
            progress = msgspec.json.decode(block, type=SourceProgress)
            self.max_times[TopicPartition(progress.topic, progress.partition)] = progress.max_time
        checkpoints = {source: Checkpoint(time) for source, time in self.max_times.items()}
        state = watermark or watermark_of(checkpoints, LATENESS_S * 1000)
        partials = [(at, block) for kind, at, block in rows if kind == PARTIALS]
        everywhere = range(self.settings.topics.aggregator_partitions)
        for partition in everywhere:
            self.merge("aggregator", [partition], [row for row in partials if row[0] == partition], state, restore)
        self.merge("observer", everywhere, partials, state, restore)
        for _, _, block in (row for row in rows if row[0] == RECORDS):
            self.written += msgspec.msgpack.decode(block, type=list[OutputRecord])

    def merge(
        self,
        stage: str,
        partitions: Sequence[int],
        blocks: list[tuple[int, bytes]],
        state: WatermarkState,
        restore: bool,  # noqa: FBT001 - as in `run`
    ) -> None:
        """Merge partials in the task of a stage that has these partitions, and keep what it commits."""
        name = stage, partitions[0]
        if restore or name not in self.mergers:
            checkpoints = {partition: self.checkpoints.get((stage, partition)) for partition in partitions}
            if stage == "aggregator":
                self.mergers[name] = PartitionMerger(self.settings, checkpoints, partial(self.read, stage))
            else:
                self.mergers[name] = LoadMerger(self.settings, checkpoints, partial(self.state, stage))
        for output in self.mergers[name].merge(blocks, state, NOW):
            if output.topic != f"{stage}-changelog":
                self.written.append(output)
                continue
            changelog, key = self.changelogs[stage, output.partition or 0], output.key or b""
            if output.value is None:
                changelog.pop(key, None)
            else:
                changelog[key] = output.value
        self.checkpoints |= {(stage, partition): self.mergers[name].checkpoint(partition) for partition in partitions}

    def state(self, stage: str, partition: int, checkpoint: str | None) -> list[tuple[bytes, bytes]]:
        assert not decode_checkpoint(checkpoint).unsaved  # no topic has the partials of a query
        return self.read(stage, partition, lambda _key: True)

    def read(self, stage: str, partition: int, keep_value: Any) -> list[tuple[bytes, bytes]]:
        changelog = self.changelogs[stage, partition]
        return [(key, value if keep_value(key) else b"") for key, value in changelog.items()]

    def values(self, topic: str) -> Iterator[dict[str, Any]]:
        return (msgspec.json.decode(output.value or b"") for output in self.written if output.topic == topic)


def new_query(emit: str, *, costs: bool = False) -> Query:
    return Query(pipeline(emit, costs=costs), {TopicPartition("source", partition): None for partition in PARTITIONS})


@settings(max_examples=settings().max_examples // 2)
@given(
    log=logs,
    cuts=cuts,
    emit=st.sampled_from(["updates", "final"]),
    restores=st.lists(st.booleans(), min_size=7),
    costs=st.booleans(),
)
def test_stream_tasks_any_micro_batches_give_the_plain_count(
    log: list[tuple[int, str, int, int]], cuts: list[int], emit: str, restores: list[bool], *, costs: bool
) -> None:
    records, query = records_of(log), new_query(emit, costs=costs)
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
    ticks = list(query.values("distribution"))
    assert sum(sum(tick["tuples_by_worker"]) for tick in ticks) == expected.tuples
    assert max((tick["run"]["tuples"] for tick in ticks), default=0) == expected.tuples


@pytest.mark.parametrize("restore", [False, True])
def test_stream_tasks_after_a_bounded_run_of_the_stages_wait_for_a_partition_without_records(*, restore: bool) -> None:
    query = new_query("final")
    query.run(records_of([(0, "a", 1, 0)]), WatermarkState(MAX_WATERMARK))
    assert len(list(query.values("aggregates"))) == 1
    query.run(records_of([(0, "a", 1, 0), (0, "b", 1, 90_000), (0, "b", 1, 900_000)])[1:], restore=restore)
    assert len(list(query.values("aggregates"))) == 1
    query.run(records_of([(1, "c", 1, 100_000)]), restore=restore)
    query.run([], WatermarkState(MAX_WATERMARK))
    found = [(entry["key"], entry["count"], entry["revision"]) for entry in query.values("aggregates")]
    assert sorted(found) == [("a", 1, 0), ("b", 1, 0), ("b", 1, 0), ("c", 1, 0)]


@settings(max_examples=settings().max_examples // 2)
@given(log=logs, costs=st.booleans())
def test_split_task_repeated_yields_the_same_rows(log: list[tuple[int, str, int, int]], *, costs: bool) -> None:
    records, query = records_of(log), new_query("updates", costs=costs)

    def rows() -> list[tuple[str, int, bytes]]:
        return [row for row in query.split(records) if row[0] not in {PROGRESS, WORK}]  # with the time of the task

    assert rows() == rows()
