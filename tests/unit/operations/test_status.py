"""Windows, problems and reasons to wait of a pipeline's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from helpers.messages import message
from helpers.stage_start import in_memory
from skewless import topology
from skewless.algorithms.grouping import KeyBatch, create
from skewless.algorithms.watermark import MAX_WATERMARK, NOTHING_REPORTED, WatermarkState
from skewless.algorithms.windowing.assigner import HoppingWindows, WindowAssigner, tumbling
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.cli.status_text import stage_cells
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.admin.groups import GroupDescription, GroupReader
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.operations import hot_keys, status
from skewless.operations.data_quality import Invalid
from skewless.operations.dead_letters import Position
from skewless.operations.recent_records import RecentRecords
from skewless.operations.status import PipelineStatus, StageStatus, open_windows, with_end_of_splitter
from skewless.stages.router import state as router_state
from skewless.wire.join_changelog import JoinCheckpoint, encode_checkpoint
from skewless.wire.topic_partition import CommittedOffset

RUNNING = GroupDescription("Stable", {"p-splitter-0": "10.0.0.1"})
EMPTY = GroupDescription("Empty", {})
ENDED = [WatermarkState(MAX_WATERMARK)]
NOW = 1_800_000_000_000


def settings(**event_time: Any) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "event_time": event_time})


def stage(
    name: str, group: GroupDescription = RUNNING, lag: Mapping[int, int] | None = None, **more: Any
) -> StageStatus:
    return StageStatus(name, group, {"t": lag or {0: 0}}, **more)


def problems(*stages: StageStatus, max_lag_s: float | None = None) -> list[str]:
    return list(status._problems(stages, NOW, max_lag_s))


def waits(*partitions: WatermarkState, lag: Mapping[int, int] | None = None, **event_time: Any) -> list[str]:
    splitter = stage("splitter", lag=lag or dict.fromkeys(range(len(partitions)), 0), partitions=partitions)
    return list(status._waits(settings(**event_time), [splitter]))


@pytest.mark.parametrize(
    ("windows", "closed_until", "newest", "expected"),
    [
        (tumbling(60), 0, 59, 1),
        (tumbling(60), 0, 60, 2),
        (tumbling(60), 60, 59, 0),
        (HoppingWindows(60, 20), 0, 0, 3),  # those that begin at -40, -20 and 0
        (HoppingWindows(60, 20), 40, 40, 3),
        (SessionWindows(10, 60), 0, 60, None),
        (tumbling(60), None, 60, None),
        (tumbling(60), 0, None, None),
        (tumbling(1), 0, 10**9, status.MAX_WINDOWS),
    ],
)
def test_open_windows_between_the_last_closed_and_the_newest_event_are_counted(
    windows: WindowAssigner, closed_until: int | None, newest: int | None, expected: int | None
) -> None:
    assert open_windows(windows, closed_until, newest) == expected


def test_problems_stage_without_a_process_is_named_with_its_lag() -> None:
    assert problems(stage("splitter"), stage("router", EMPTY, {0: 7, 1: 2})) == [
        "router: no process runs; unprocessed records: 9"
    ]


def test_problems_after_the_end_of_a_bounded_run_are_only_those_of_new_records() -> None:
    router, worker = stage("router", EMPTY, partitions=ENDED), stage("worker")
    assert problems(stage("splitter", EMPTY), router, worker) == []
    assert problems(stage("splitter", EMPTY, {0: 1}), router) == ["splitter: no process runs; unprocessed records: 1"]
    assert problems(stage("splitter"), stage("router", EMPTY)) == ["router: no process runs"]


def test_problems_after_a_bounded_run_of_a_join_alone_are_only_those_of_new_records() -> None:
    left, right, join = stage("left", EMPTY), stage("right", EMPTY), stage("join", EMPTY, partitions=ENDED)
    assert problems(left, right, join) == []
    assert problems(stage("left", EMPTY, {0: 1}), right, join) == ["left: no process runs; unprocessed records: 1"]
    assert problems(stage("join", EMPTY)) == ["join: no process runs"]
    # The splitter, which reads the pairs, has its own end.
    assert problems(join, stage("splitter", EMPTY), stage("router", EMPTY))[0] == "join: no process runs"


def test_problems_of_a_query_of_spark_are_those_of_its_driver() -> None:
    router, sink = stage("router", EMPTY, partitions=ENDED), stage("sink", EMPTY)
    query = stage("splitter", GroupDescription("Stable", {"p-stream": "10.0.0.1"}), engine="spark")
    assert problems(query, router, sink) == ["sink: no process runs"]
    stopped = stage("splitter", EMPTY, {0: 3}, engine="spark")
    assert problems(stopped, router) == ["stream: no process runs; unprocessed records: 3"]
    assert problems(stage("splitter", EMPTY, engine="spark"), router) == ["stream: no process runs"]


def test_only_invalid_records_of_the_source_topics_are_a_problem() -> None:
    letters = [
        Invalid("malformed JSON", Position(topic, 0, offset), "{")
        for offset, topic in enumerate(["left", "raw", "raw"])
    ]
    some, sampled = RecentRecords(4, [*letters, None]), RecentRecords(400_000, [*letters, None])
    (of_raw,), (about,) = (list(status._only_invalid(found, {"raw"}, settings())) for found in (some, sampled))
    assert of_raw.startswith("splitter: all 2 records so far are invalid")
    assert about.startswith("splitter: all about 200,000 records so far are invalid")
    assert list(status._only_invalid(some, {"p.joined"}, settings())) == []


def test_splitter_without_new_records_after_a_bounded_run_has_ended() -> None:
    at = [WatermarkState(NOW), WatermarkState(NOW - 1)]
    splitter, router = stage("splitter", EMPTY, partitions=at), stage("router", EMPTY, partitions=ENDED)
    assert [found.has_ended for found in with_end_of_splitter([splitter, router])] == [True, True]
    running = stage("router", partitions=[WatermarkState(NOW)])
    assert with_end_of_splitter([splitter, running]) == [splitter, running]
    behind = stage("splitter", EMPTY, {0: 1}, partitions=at)
    assert with_end_of_splitter([behind, router]) == [behind, router]
    queried = stage("splitter", EMPTY, partitions=at, engine="spark")
    assert with_end_of_splitter([queried, router]) == [queried, router]


def test_problems_record_older_than_the_limit_is_one() -> None:
    late = stage("worker", lag={0: 1}, oldest_unprocessed_ms=NOW - 61_000)
    assert problems(late) == problems(late, max_lag_s=61) == []
    assert problems(late, max_lag_s=60) == ["worker: the oldest unprocessed record is 61 s old, more than 60 s"]


@pytest.mark.parametrize("name", ["sink", "ranksink", "mirror"])
def test_problems_results_have_no_lag_in_seconds_because_their_timestamp_is_that_of_their_window(name: str) -> None:
    behind = stage(name, lag={0: 1}, oldest_unprocessed_ms=NOW - 3_600_000)
    assert problems(behind, max_lag_s=60) == []
    report = PipelineStatus("p", NOW, [behind], None, None, {}, 300.0, None)
    assert status.largest_lag_s(report) == 0
    assert status.as_json(report)["stages"][0]["lag_s"] is None
    assert stage_cells(behind, report)[:2] == ("1", "-")


def test_waits_partition_without_new_records_is_named() -> None:
    active, behind = WatermarkState(NOW), WatermarkState(NOW - 60_000)
    assert waits(active, behind) == [
        (
            "windows wait for newer records of source partitions 1, whose event time is up to 60 s behind that of the "
            "newest partition (for up to 30 s without a record)"
        )
    ]
    assert waits(active, behind._replace(idle=True)) == []
    assert waits(active, behind, lag={0: 0, 1: 5}) == []
    assert waits(active, WatermarkState(), idle_timeout_s=None) == [
        "windows wait for the first record of source partitions 1 (event_time.idle_timeout_s is null)"
    ]
    assert waits(WatermarkState(), WatermarkState()) == []


def test_stage_event_time_of_source_partitions_excludes_idle_ones() -> None:
    partitions = [WatermarkState(5), WatermarkState(3, idle=True)]
    assert stage("splitter", partitions=partitions).event_time == WatermarkState(5)
    assert stage("aggregator", partitions=partitions).event_time == WatermarkState(3)


@pytest.mark.parametrize(
    ("found", "group", "expected"), [((), RUNNING, "running"), ((), EMPTY, "finished"), (("x",), RUNNING, "failing")]
)
def test_pipeline_state_follows_from_problems_and_processes(
    found: tuple[str, ...], group: GroupDescription, expected: str
) -> None:
    report = PipelineStatus("p", NOW, [stage("splitter", group)], None, None, {}, 300, None, problems=found)
    assert report.state == expected


@pytest.mark.parametrize(
    ("found", "group", "readiness", "expected"),
    [
        ((), RUNNING, {}, True),
        ((), RUNNING, {"splitter-0": ()}, True),
        ((), RUNNING, {"splitter-0": ("restoring state",)}, False),
        ((), RUNNING._replace(state="PreparingRebalance"), {}, False),
        (("splitter: no process runs",), EMPTY, {}, False),
    ],
    ids=["running", "ready", "not ready", "rebalancing", "problem"],
)
def test_pipeline_is_ready_without_problems_rebalances_and_processes_that_are_not(
    found: tuple[str, ...], group: GroupDescription, readiness: Mapping[str, tuple[str, ...]], *, expected: bool
) -> None:
    splitter = stage("splitter", group, readiness=readiness)
    report = PipelineStatus("p", NOW, [splitter], None, None, {}, 300, None, problems=found)
    assert report.is_ready is expected


def test_offset_problems_deleted_records_and_recreated_topics_are_named() -> None:
    committed = {p: CommittedOffset(offset) for p, offset in enumerate((5, 5, 5))}
    lines = list(status._offset_problems("t", committed, {0: (6, 9), 1: (0, 9), 2: (0, 4)}))
    assert lines == [
        "records of topic t were deleted before they were processed: partitions 0",
        "topic t ends before the committed offset: partitions 2; was it deleted?",
    ]


def test_source_partition_that_is_added_during_the_read_has_no_event_time_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "first_records", lambda *_: {})
    offsets = SimpleNamespace(committed=lambda *_: {}, ranges=lambda _topic: {0: (0, 0), 1: (0, 0)})
    groups = SimpleNamespace(describe=lambda _group: RUNNING)
    start = in_memory("splitter", settings(), 1)
    found = status._stage_status(start, cast("OffsetReader", offsets), cast("GroupReader", groups))
    assert found is not None
    assert found.partitions == [NOTHING_REPORTED] * 2
    assert list(status._waits(settings(), [found])) == []


def test_hot_keys_of_more_workers_than_the_default_maximum_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = PipelineSettings.model_validate(
        {"name": "p", "source": {"topic": "t"}, "router": {"grouping": "dynamic_key"}}
    )
    grouping = create("dynamic_key", 65, pipeline.router)
    for now in (0, 45_000):
        times = np.full(100, now, dtype=np.int64)
        grouping.assign(KeyBatch(["hot"], np.zeros(100, dtype=np.int32), times), now)
    loads = router_state.write(grouping, 0)
    assert loads is not None
    saved = message(0, loads.value, key=loads.key)
    monkeypatch.setattr(hot_keys, "read_ranges", lambda *_: [(0, [saved])])
    offsets = cast("OffsetReader", SimpleNamespace(ranges=lambda _topic: {0: (0, 1)}))
    assert [hot.key for hot in hot_keys.hot_keys(pipeline, offsets, 65)] == ["hot"]
    assert hot_keys.hot_keys(pipeline, offsets, 64) == []


def test_each_stage_with_topics_has_event_time_in_the_status() -> None:
    """A stage with an output of its own has its checkpoints in a database, and the enricher reads no times."""
    without = {row.name for row in topology.STAGES if row.event_time is None}
    assert without == {"enricher", *(row.name for row in topology.STAGES if not row.outputs)}
    source = {"source": {"topic": "t"}, "splitter": {"key": {"from": "record_key"}}}
    sides = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")}
    for repartition in ("never", "always"):
        document = {"name": "p", **source, "join": {**sides, "apart_s": 5, "repartition": repartition}}
        pipeline = PipelineSettings.model_validate(document)
        for row in topology.STAGES:
            for topic in row.inputs_of(pipeline):
                states = status.event_times(in_memory(row.name, pipeline, 2), topic, [None, None])
                assert list(states) == [NOTHING_REPORTED] * (0 if row.name in without else 2), row.name


def test_join_event_time_is_the_largest_time_minus_the_disorder_of_its_side() -> None:
    joined = PipelineSettings.model_validate(
        {
            "name": "ads",
            "join": {
                "left": {"topic": "impressions", "format": "json", "id": {"field": "id"}, "time": {"field": "time"}},
                "right": {"topic": "clicks", "format": "json", "id": {"field": "id"}, "time": {"field": "time"}},
                "apart_s": 5,
                "window_s": 6,
                "sync_delay_s": 8,
            },
        }
    )
    checkpoints = [
        None,
        encode_checkpoint(JoinCheckpoint(max_time=20_000)),
        encode_checkpoint(JoinCheckpoint(max_time=20_000, floor=30_000)),
        encode_checkpoint(JoinCheckpoint(max_time=20_000, ended=True)),
    ]
    start = in_memory("join", joined, 1)
    left, right = (status.event_times(start, topic, checkpoints) for topic in ("left", "right"))
    assert [state.watermark for state in left] == [None, 19_000, 30_000, MAX_WATERMARK]
    assert [state.watermark for state in right] == [None, 17_000, 30_000, MAX_WATERMARK]


def test_splitter_with_more_processes_than_source_partitions_is_a_warning() -> None:
    three = GroupDescription("Stable", {f"p-splitter-{number}": "10.0.0.1" for number in range(3)})
    assert list(status._without_partitions(stage("splitter", three, {0: 0, 1: 0, 2: 5}))) == []
    (warning,) = status._without_partitions(stage("splitter", three, {0: 0, 1: 0}))
    assert warning.startswith("splitter: 3 processes for 2 source partitions, so 1 without work: set replicas.splitter")
    assert list(status._without_partitions(None)) == []


def test_splitter_with_more_processes_than_the_largest_topic_has_partitions_is_a_warning() -> None:
    """The partitions of each topic are assigned to the first processes."""
    four = GroupDescription("Stable", {f"p-splitter-{number}": "10.0.0.1" for number in range(4)})
    splitter = replace(stage("splitter", four), lag={"a": {0: 0, 1: 0}, "b": {0: 0, 1: 0}})
    (warning,) = status._without_partitions(splitter)
    assert warning.startswith("splitter: 4 processes for 2 source partitions of the largest topic, so 2 without work")
