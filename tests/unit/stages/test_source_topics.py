"""Limits of several source topics, and reports of pipelines that had one topic before."""

from __future__ import annotations

import pytest

from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS, WatermarkState
from skewless.errors import BadRecordError, ConfigurationError
from skewless.stages.router.upstream import OneSource, SeveralSources
from skewless.stages.source_topics import (
    CHARACTERS_PER_TOPIC,
    MAX_NAME_CHARACTERS,
    MAX_SHARING,
    check_source_topics,
)
from skewless.stages.splitter.reports import SeveralTopics
from skewless.wire.headers import report_of, report_of_sources
from skewless.wire.topic_partition import TopicPartition

CHECKPOINT_CHARACTERS = 3_850


def test_check_source_topics_too_many_partitions_counts_all_topics() -> None:
    check_source_topics({"a": 1_000, "b": MAX_SOURCE_PARTITIONS - 1_000}, 1_000)
    with pytest.raises(ConfigurationError, match=r"source\.topics: the 2 topics have 3001 partitions together"):
        check_source_topics({"a": 1_000, "b": MAX_SOURCE_PARTITIONS - 999}, 1_000)


def test_check_source_topics_too_many_partitions_of_one_of_tuples_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"1001 of 2001 source partitions .* topics\.tuples_partitions"):
        check_source_topics({"a": 2_001}, 2)


def test_check_source_topics_too_long_names_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="the names of the 20 topics have"):
        check_source_topics({f"{number}".rjust(249, "x"): 1 for number in range(20)}, 1)


def test_several_sources_checkpoint_of_the_largest_number_of_topics_fits() -> None:
    length = 20
    topics = MAX_NAME_CHARACTERS // (length + CHARACTERS_PER_TOPIC)
    counts = {str(number).rjust(length, "x"): 1 for number in range(topics - 1)} | {
        "y" * length: MAX_SHARING - topics + 1
    }
    check_source_topics(counts, 1)
    upstream = SeveralSources(0, 1, None)
    for topic, count in counts.items():
        states = {TopicPartition(topic, number): WatermarkState(number * 10**9 + 1) for number in range(count)}
        upstream.update_of(report_of_sources(states))()
    checkpoint = upstream.checkpoint()
    assert len(checkpoint) <= CHECKPOINT_CHARACTERS
    assert SeveralSources(0, 1, checkpoint).state == upstream.state == WatermarkState(1)


def test_several_sources_report_of_one_topic_counts_until_the_topics_are_named() -> None:
    upstream = SeveralSources(1, 2, OneSource(1, None).checkpoint())
    upstream.update_of(report_of({1: WatermarkState(50)}))()
    assert upstream.state == WatermarkState(50)
    upstream = SeveralSources(1, 2, upstream.checkpoint())
    reports = SeveralTopics(2)
    reports.observe_topics({"a": 2, "b": 4})
    upstream.update_of(reports.report(TopicPartition("a", 1), WatermarkState(60)))()
    assert upstream.state == WatermarkState(50), "partitions 1 and 3 of topic b have no watermark yet"
    for number in (1, 3):
        upstream.update_of(reports.report(TopicPartition("b", number), WatermarkState(55)))()
    assert upstream.state == WatermarkState(55)


def test_several_sources_checkpoint_of_one_source_is_continued() -> None:
    one = OneSource(1, None)
    one.update_of(report_of({1: WatermarkState(50, idle=True)}))()
    assert SeveralSources(1, 2, one.checkpoint()).state == WatermarkState(50, idle=True)


def test_one_source_checkpoint_of_several_is_refused() -> None:
    upstream = SeveralSources(0, 1, None)
    upstream.update_of(report_of_sources({TopicPartition("a", 0): WatermarkState(5)}))()
    with pytest.raises(ConfigurationError, match=r"source\.topic: the pipeline has run with source\.topics"):
        OneSource(0, upstream.checkpoint())


def test_several_sources_report_of_another_partition_is_invalid() -> None:
    upstream = SeveralSources(0, 2, None)
    with pytest.raises(BadRecordError, match="source partition a/1 does not belong"):
        upstream.update_of(report_of_sources({TopicPartition("a", 1): WatermarkState(5)}))


def test_several_sources_new_topic_after_all_were_idle_holds_the_watermark() -> None:
    upstream = SeveralSources(0, 1, None)
    upstream.update_of(report_of_sources({TopicPartition("a", 0): WatermarkState(70, idle=True)}))()
    assert upstream.state == WatermarkState(70, idle=True)
    upstream.update_of(report_of_sources({TopicPartition("b", 0): WatermarkState()}))()
    assert upstream.state == WatermarkState(70)
