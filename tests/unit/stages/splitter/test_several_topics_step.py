"""Steps of the splitter and the router with several source topics."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from helpers.batches import FORMAT, ROW_FORMAT, batch_of, json_values_in, tuples_in, watermarks_in, written
from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms import grouping
from skewless.algorithms.local_buffer import LocalRules
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.validation import EventTimeRules
from skewless.stages.router.step import RouterStep
from skewless.stages.router.upstream import Upstream
from skewless.stages.source_topics import NO_TOPIC
from skewless.stages.splitter.local_step import STEPS, LocalSplitterRules
from skewless.stages.splitter.reports import SourceReports
from skewless.stages.splitter.step import SplitterRules, SplitterStep
from skewless.wire.headers import sources_of
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

NOW = 1_000_000
TARGETS = 2
COUNTS = {"a": 2, "b": 3}
SETTINGS = ParsingSettings.model_validate({"key": {"field": "k"}, "value": {"field": "v"}, "time": {"field": "t"}})
EVENT_TIME = EventTimeRules(lateness_ms=10, max_ahead_ms=1_000)
A0, A1, B0, B2 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 2))
LOCAL = LocalRules(columns=ROW_FORMAT.columns, pane_ms=10, max_rows=1_000)


def splitter(*owned: TopicPartition, local: str = "none", targets: int = TARGETS) -> SplitterStep:
    rules = LocalSplitterRules(
        event_time=EVENT_TIME,
        tuple_format=FORMAT,
        idle_timeout_ms=500,
        drain=False,
        local=LOCAL,
        row_format=ROW_FORMAT,
    )
    step = STEPS[local](RecordParser(SETTINGS), rules, SourceReports(targets))
    step.observe_topics(COUNTS)
    for partition in owned:
        step.assign(partition, None, ())
    return step


def split(step: SplitterStep, source: TopicPartition, *times: int) -> list[OutputRecord]:
    values = [json.dumps({"k": f"k{time}", "v": 1, "t": time}).encode() for time in times]
    batch = batch_of(source.partition, values)
    batch.topic = source.topic
    return [*step.process(batch, NOW), *step.held_records(source)]


def reported(outputs: Sequence[OutputRecord]) -> list[dict[TopicPartition, WatermarkState]]:
    return [sources_of(output.headers) for output in outputs]


def test_splitter_of_several_topics_writes_to_the_partition_number_modulo_that_of_tuples() -> None:
    step = splitter(A1, B2)
    assert [output.partition for output in (*split(step, A1, 100), *split(step, B2, 100))] == [1, 0]


def test_splitter_of_several_topics_first_report_names_all_source_partitions_of_the_target() -> None:
    step = splitter(A0, B0)
    first, second = (reported(split(step, A0, time)) for time in (100, 120))
    everything = TopicPartition(NO_TOPIC, 0)
    assert first == [{A0: WatermarkState(90), B0: WatermarkState(), B2: WatermarkState(), everything: WatermarkState()}]
    assert second == [{A0: WatermarkState(110)}]
    assert reported(list(step.flush(NOW))) == [], "partition 1 of tuples belongs to another splitter"
    step.assign(A1, None, ())
    assert reported(list(step.flush(NOW)))[:2] == [
        {A0: WatermarkState(110), B0: WatermarkState(), B2: WatermarkState(), everything: WatermarkState()},
        {A1: WatermarkState(), TopicPartition("b", 1): WatermarkState(), TopicPartition(NO_TOPIC, 1): WatermarkState()},
    ]


@pytest.mark.parametrize("local", ["buffer", "windows"])
def test_splitter_of_several_topics_with_local_aggregation_reports_rows_by_topic(local: str) -> None:
    step = splitter(A0, B0, local=local)
    for source, time in ((A0, 100), (B0, 200), (A0, 300), (B0, 400)):
        split(step, source, time)
    last: dict[TopicPartition, WatermarkState] = {}
    for states in reported(list(step.flush(NOW))):
        last |= states
    held = local == "windows"
    assert (last[A0], last[B0]) == (WatermarkState(290), WatermarkState(390)), held
    labels = {sample.labels for sample in step.collect_metrics() if sample.name == "skewless_splitter_local_active"}
    assert labels == {("a/0",), ("b/0",)}


def test_splitter_of_several_topics_lateness_depends_on_each_source_partition_alone() -> None:
    step = splitter(A0, B0)
    assert tuples_in(written(split(step, A0, 1_000), "tuples")) == [("k1000", 1, 1_000)]
    assert tuples_in(written(split(step, B0, 100), "tuples")) == [("k100", 1, 100)], "late in the other topic only"
    (late,) = written(split(step, A0, 100), "late")
    assert (json_values_in([late])[0]["partition"], dict(late.headers)["topic"]) == (0, b"a")


def test_splitter_of_several_topics_dead_letter_names_the_topic() -> None:
    step = splitter(B2)
    batch = batch_of(2, [b"{"])
    batch.topic = "b"
    (letter,) = step.process(batch, NOW)
    headers = dict(letter.headers)
    assert (headers["__skewless.errors.topic"], headers["__skewless.errors.partition"]) == (b"b", b"2")


def test_splitter_with_more_partitions_of_tuples_than_sources_reports_the_others_as_idle_once() -> None:
    step = splitter(A0, targets=5)
    assert [(output.partition, sources_of(output.headers)) for output in step.flush(NOW)][1:] == [
        (target, {TopicPartition("", target): WatermarkState(idle=True)}) for target in (3, 4)
    ]
    assert list(step.flush(NOW)) == []


def router() -> RouterStep:
    step = RouterStep(
        grouping.create("key", 1),
        FORMAT,
        ROW_FORMAT,
        max_workers=1,
        encoding="batch",
        topic="tuples",
        snapshot_ms=10_000,
        new_upstream=lambda partition, checkpoint: Upstream(partition, TARGETS, checkpoint),
    )
    step.assign(0, None, ())
    return step


def route(step: RouterStep, outputs: Sequence[OutputRecord]) -> list[dict[int, int]]:
    """Return the watermarks that workers get in this commit."""
    records = [output for output in outputs if output.topic == "tuples" and output.partition == 0]
    routed = list(step.process(InMemoryBatch(0, records), NOW))
    return [found for found in watermarks_in([*routed, *step.flush(NOW)]) if found]


def test_router_waits_for_each_source_partition_of_its_partition_of_tuples() -> None:
    step, writer = router(), splitter(A0, B0, B2)
    assert route(step, split(writer, A0, 500)) == []
    assert route(step, split(writer, B0, 300)) == []
    assert route(step, split(writer, B2, 400))[-1] == {0: 290}
    assert route(step, split(writer, B0, 1_000))[-1] == {0: 390}


def test_router_restarted_continues_with_the_watermarks_of_all_source_partitions() -> None:
    step, writer = router(), splitter(A0, B0, B2)
    for source, time in ((A0, 500), (B0, 300), (B2, 400)):
        route(step, split(writer, source, time))
    restarted = router()
    restarted.assign(0, step.checkpoint(0), ())
    assert restarted.watermark(0) == 290
    assert route(restarted, split(writer, B0, 600))[-1] == {0: 390}


def test_router_source_partition_that_is_added_holds_the_watermark_until_it_reports() -> None:
    step, writer = router(), splitter(A0, B0, B2)
    for source in (A0, B0, B2):
        route(step, split(writer, source, 500))
    writer.observe_topics({**COUNTS, "c": 1})
    added = TopicPartition("c", 0)
    writer.assign(added, None, ())
    route(step, list(writer.flush(NOW)))
    for source in (A0, B0, B2):
        route(step, split(writer, source, 900))
    assert step.watermark(0) == 490
    assert route(step, split(writer, added, 700))[-1] == {0: 690}


def test_router_bounded_run_ends_when_all_source_partitions_have_ended() -> None:
    step = router()
    rules = SplitterRules(event_time=EVENT_TIME, tuple_format=FORMAT, idle_timeout_ms=None, drain=True)
    writer = SplitterStep(RecordParser(SETTINGS), rules, SourceReports(TARGETS))
    writer.observe_topics(COUNTS)
    for source in (A0, B0, B2):
        writer.assign(source, None, ())
        writer.end_of_partition(source, NOW)
    assert route(step, list(writer.flush(NOW))) == [{0: MAX_WATERMARK}]
    assert step.finished(0)
