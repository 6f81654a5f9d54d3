"""Limits of source topics, and reports with and without names."""

from __future__ import annotations

import itertools
import json

import pytest

from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS, MAX_WATERMARK, MIN_WATERMARK, WatermarkState
from skewless.errors import BadRecordError, ConfigurationError
from skewless.stages.router.upstream import Upstream
from skewless.stages.source_topics import (
    CHARACTERS_PER_TOPIC,
    MAX_NAME_CHARACTERS,
    MAX_SHARING,
    check_source_topics,
)
from skewless.stages.splitter.reports import SourceReports
from skewless.wire.headers import report_of, report_of_sources
from skewless.wire.topic_partition import TopicPartition

CHECKPOINT_CHARACTERS = 3_850


def test_check_source_topics_too_many_partitions_counts_all_topics() -> None:
    check_source_topics({"a": 1_000, "b": MAX_SOURCE_PARTITIONS - 1_000}, 1_000)
    with pytest.raises(ConfigurationError, match=r"source: the 2 topics have together 3001 partitions"):
        check_source_topics({"a": 1_000, "b": MAX_SOURCE_PARTITIONS - 999}, 1_000)


def test_check_source_topics_too_many_partitions_of_one_of_tuples_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"1001 of 2001 source partitions .* topics\.tuples_partitions"):
        check_source_topics({"a": 2_001}, 2)


def test_check_source_topics_too_long_names_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the names of the 20 topics have"):
        check_source_topics({f"{number}".rjust(249, "x"): 1 for number in range(20)}, 1)


def test_upstream_of_several_topics_checkpoint_of_the_largest_number_of_topics_fits() -> None:
    length = 20
    topics = MAX_NAME_CHARACTERS // (length + CHARACTERS_PER_TOPIC)
    counts = {str(number).rjust(length, "x"): 1 for number in range(topics - 1)} | {
        "y" * length: MAX_SHARING - topics + 1
    }
    check_source_topics(counts, 1)
    upstream = Upstream(0, 1, None)
    for topic, count in counts.items():
        states = {TopicPartition(topic, number): WatermarkState(number * 10**9 + 1) for number in range(count)}
        upstream.update_of(report_of_sources(states))()
    checkpoint = upstream.checkpoint()
    assert len(checkpoint) <= CHECKPOINT_CHARACTERS
    assert Upstream(0, 1, checkpoint).state == upstream.state == WatermarkState(1)


def test_upstream_of_several_topics_report_of_one_topic_counts_until_the_topics_are_named() -> None:
    upstream = Upstream(1, 2, "[null,false]")
    upstream.update_of(report_of({1: WatermarkState(50)}))()
    assert upstream.state == WatermarkState(50)
    upstream = Upstream(1, 2, upstream.checkpoint())
    reports = SourceReports(2)
    reports.observe_topics({"a": 2, "b": 4})
    upstream.update_of(reports.report(TopicPartition("a", 1), WatermarkState(60)))()
    assert upstream.state == WatermarkState(50), "partitions 1 and 3 of topic b have no watermark yet"
    for number in (1, 3):
        upstream.update_of(reports.report(TopicPartition("b", number), WatermarkState(55)))()
    assert upstream.state == WatermarkState(55)


def test_upstream_checkpoint_of_one_topic_is_continued_with_several() -> None:
    one = Upstream(1, 2, None, "a")
    one.update_of(report_of({1: WatermarkState(50, idle=True)}))()
    assert Upstream(1, 2, one.checkpoint()).state == WatermarkState(50, idle=True)


@pytest.mark.parametrize("state", list(itertools.starmap(WatermarkState, itertools.product([None, 50], [False, True]))))
def test_upstream_of_one_topic_that_has_not_grown_has_the_checkpoints_of_0_2(state: WatermarkState) -> None:
    upstream = Upstream(1, 2, None, "a")
    upstream.update_of(report_of({1: state}))()
    assert upstream.checkpoint() == json.dumps(state, separators=(",", ":"))
    assert Upstream(1, 2, upstream.checkpoint(), "a").state == upstream.state == state


def test_upstream_of_one_topic_reads_both_forms_of_reports_in_any_order() -> None:
    """One splitter does not know of the added partition 3 yet, and another one has it."""
    upstream, reports = Upstream(1, 2, "[50,false]", "a"), SourceReports(2, "a")
    assert reports.report(TopicPartition("a", 1), WatermarkState(60)) == report_of({1: WatermarkState(60)})
    reports.observe_topics({"a": 4})
    upstream.update_of(reports.report(TopicPartition("a", 3), WatermarkState()))()
    upstream.update_of(report_of({1: WatermarkState(60)}))()
    assert upstream.state == WatermarkState(50), "the added partition has no watermark yet"
    upstream = Upstream(1, 2, upstream.checkpoint(), "a")
    upstream.update_of(reports.report(TopicPartition("a", 3), WatermarkState(70)))()
    assert upstream.state == WatermarkState(60)
    upstream.update_of(report_of({1: WatermarkState(80)}))()
    assert upstream.state == WatermarkState(70)


def test_upstream_of_one_topic_that_grows_while_its_partition_is_idle_waits_for_the_new_one_only() -> None:
    upstream, reports = Upstream(1, 2, "[50,true]", "a"), SourceReports(2, "a")
    reports.observe_topics({"a": 4})
    upstream.update_of(reports.report(TopicPartition("a", 3), WatermarkState(70)))()
    assert Upstream(1, 2, upstream.checkpoint(), "a").state == upstream.state == WatermarkState(70)


def test_upstream_of_one_topic_continues_checkpoints_with_names() -> None:
    several = Upstream(0, 1, None)
    several.update_of(report_of_sources({TopicPartition("a", 0): WatermarkState(5)}))()
    one = Upstream(0, 1, several.checkpoint(), "a")
    one.update_of(report_of({0: WatermarkState(7)}))()
    assert (one.state, one.checkpoint()) == (WatermarkState(7), "[7,false]")


def test_upstream_of_several_topics_report_of_another_partition_is_invalid() -> None:
    upstream = Upstream(0, 2, None)
    with pytest.raises(BadRecordError, match="source partition a/1 does not belong"):
        upstream.update_of(report_of_sources({TopicPartition("a", 1): WatermarkState(5)}))


def test_upstream_of_several_topics_new_topic_after_all_were_idle_holds_the_watermark() -> None:
    upstream = Upstream(0, 1, None)
    upstream.update_of(report_of_sources({TopicPartition("a", 0): WatermarkState(70, idle=True)}))()
    assert upstream.state == WatermarkState(70, idle=True)
    upstream.update_of(report_of_sources({TopicPartition("b", 0): WatermarkState()}))()
    assert upstream.state == WatermarkState(70)


END = WatermarkState(MAX_WATERMARK)


@pytest.mark.parametrize("removed", [END, WatermarkState(40, idle=True)])
@pytest.mark.parametrize("remaining", [2, 1])
def test_upstream_of_a_topic_that_was_removed_ends_and_continues_without_it(
    removed: WatermarkState, remaining: int
) -> None:
    """Also where no other topic has a partition for this one of `tuples`."""
    upstream, reports, source = Upstream(1, 2, None), SourceReports(2), TopicPartition("a", remaining - 1)
    upstream.update_of(report_of_sources({TopicPartition("a", 1): END} if remaining == 2 else {}))()
    upstream.update_of(report_of_sources({TopicPartition("b", 1): removed}))()
    upstream = Upstream(1, 2, upstream.checkpoint())
    upstream.restart()
    reports.observe_topics({"a": remaining})
    for state in (WatermarkState(50), END):
        headers = [reports.report(source, state)] if remaining == 2 else []
        headers += [output.headers for output in reports.without_source({source: state == END})]
        for report in headers:
            upstream.update_of(report)()
        assert upstream.state == (state if remaining == 2 or state == END else WatermarkState(None, idle=True))


def test_upstream_of_a_topic_that_was_removed_while_it_was_active_waits_for_it() -> None:
    upstream, reports = Upstream(0, 1, None), SourceReports(1)
    upstream.update_of(report_of_sources({TopicPartition(topic, 0): WatermarkState(40) for topic in "ab"}))()
    reports.observe_topics({"a": 1})
    upstream.update_of(reports.report(TopicPartition("a", 0), WatermarkState(50)))()
    assert upstream.state == WatermarkState(40)


def test_upstream_of_one_topic_after_several_continues_without_those_that_have_ended() -> None:
    several = Upstream(0, 1, None)
    several.update_of(report_of_sources({TopicPartition(topic, 0): END for topic in "ab"}))()
    one = Upstream(0, 1, several.checkpoint(), "a")
    one.restart()
    one.update_of(report_of({0: WatermarkState(50)}))()
    assert (one.state, one.checkpoint()) == (WatermarkState(50), "[50,false]")


def test_upstream_of_several_topics_that_only_ended_is_not_at_its_end_with_a_new_topic() -> None:
    """What the router has forwarded is the end."""
    upstream, reports = Upstream(0, 1, None), SourceReports(1)
    upstream.update_of(report_of_sources({TopicPartition("a", 0): END}))()
    upstream = Upstream(0, 1, upstream.checkpoint())
    upstream.restart()
    reports.observe_topics({"a": 1, "b": 1})
    upstream.update_of(reports.report(TopicPartition("a", 0), WatermarkState(50)))()
    assert upstream.state == WatermarkState(MIN_WATERMARK)
    upstream.update_of(reports.report(TopicPartition("b", 0), WatermarkState(60)))()
    assert upstream.state == WatermarkState(50)
