"""What the topics of a pipeline should be, and in what one that exists differs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from skewless import topology
from skewless.algorithms.sized import RECORD_BYTES
from skewless.algorithms.watermark import MAX_ORIGINS, OriginMarks
from skewless.errors import ConfigurationError
from skewless.settings import PipelineSettings
from skewless.transport import topics
from skewless.transport.admin import Found
from skewless.transport.topics import ANY_TIME_MS, TopicSpec, desired_topics, differences, stage_partitions


def plan(source_partitions: int = 3, **parts: Any) -> dict[str, TopicSpec]:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}, **parts})
    return {spec.name.removeprefix("p."): spec for spec in desired_topics(settings, source_partitions)}


def test_every_topic_of_the_topology_is_planned_and_the_users_own_is_not() -> None:
    assert list(plan()) == [topic.name for topic in topology.TOPICS]


def test_partitions_come_from_the_source_the_settings_or_are_one() -> None:
    wanted = plan(7, worker_input={"max_workers": 9}, topics={"aggregator_partitions": 5})
    assert {name: spec.partitions for name, spec in wanted.items()} == {
        "tuples": 7,
        "late": 7,
        "worker-input": 9,
        "control": 7,
        "partials": 5,
        "windows": 5,
        "aggregates": 5,
        "ticks": 5,
        "distribution": 1,
        "dead-letters": 7,
    }


TOO_MANY = "topic {} has 3001 partitions, a pipeline can follow at most 3000"


def test_a_source_with_too_many_partitions_for_a_checkpoint_is_refused_before_topics_are_made() -> None:
    assert plan(MAX_ORIGINS)["tuples"].partitions == MAX_ORIGINS
    with pytest.raises(ConfigurationError, match=TOO_MANY.format("mine")):
        plan(MAX_ORIGINS + 1)


@pytest.mark.parametrize("stage", topology.STAGES, ids=lambda stage: stage.name)
@pytest.mark.parametrize("measure", ["mine", "p.tuples"])
def test_every_stage_refuses_a_source_with_too_many_partitions(
    stage: topology.Stage, measure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}})
    counts = dict.fromkeys((settings.topic(stage.source), measure), MAX_ORIGINS + 1)
    monkeypatch.setattr(topics, "_partition_counts", lambda *_: counts)
    with pytest.raises(ConfigurationError, match=TOO_MANY.format("(mine|p.tuples)")):
        stage_partitions(settings, stage)


def test_the_largest_w_fits_into_a_checkpoint() -> None:
    PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}, "worker_input": {"max_workers": 1024}})
    OriginMarks(1024)
    with pytest.raises(ValidationError, match="max_workers"):
        PipelineSettings.model_validate(
            {"name": "p", "source": {"topic": "mine"}, "worker_input": {"max_workers": MAX_ORIGINS + 1}}
        )


@pytest.mark.parametrize("topic", topology.TOPICS, ids=lambda topic: topic.name)
def test_event_times_far_from_the_clock_are_allowed_everywhere(topic: topology.Topic) -> None:
    options = plan()[topic.name].options
    assert options["message.timestamp.type"] == "CreateTime"
    assert options["message.timestamp.before.max.ms"] == options["message.timestamp.after.max.ms"] == ANY_TIME_MS


def test_only_internal_topics_forget_by_age() -> None:
    wanted = plan(topics={"internal_retention_s": 120})
    assert wanted["tuples"].options["retention.ms"] == "120000"
    assert wanted["late"].options["retention.ms"] == "-1"


@pytest.mark.parametrize("topic", topology.TOPICS, ids=lambda topic: topic.name)
def test_no_topic_is_trimmed_by_bytes_and_internal_ones_must_not_be(topic: topology.Topic) -> None:
    spec = plan()[topic.name]
    deleted = topic.cleanup == "delete"
    assert spec.options.get("retention.bytes") == ("-1" if deleted else None)
    trimmed = Found(spec.partitions, 1, {**spec.options, "retention.bytes": "1073741824"})
    found = list(differences(spec, trimmed))
    assert bool(found) == (deleted and not topic.public)
    assert all("retention.bytes is 1073741824, should be -1; `kafka-configs.sh" in line for line in found)


@pytest.mark.parametrize("topic", topology.TOPICS, ids=lambda topic: topic.name)
def test_every_topic_takes_large_records_and_internal_ones_must(topic: topology.Topic) -> None:
    spec = plan()[topic.name]
    assert int(spec.options["max.message.bytes"]) >= 2 * RECORD_BYTES
    assert ("max.message.bytes" in spec.verified) == (not topic.public)
    small = Found(spec.partitions, 1, {**spec.options, "max.message.bytes": "1048588"})
    large = Found(spec.partitions, 1, {**spec.options, "max.message.bytes": "20000000"})
    told = list(differences(spec, small))
    assert [line for line in told if "max.message.bytes is 1048588, should be at least 8388608" not in line] == []
    assert bool(told) == (not topic.public)
    assert list(differences(spec, large)) == []


@pytest.mark.parametrize("name", ["control", "windows", "aggregates", "ticks"])
def test_state_and_results_are_compacted_soon(name: str) -> None:
    options = plan()[name].options
    assert options["cleanup.policy"] == "compact"
    assert options["segment.bytes"] == "67108864"
    assert "retention.ms" not in options


def test_options_of_the_user_win() -> None:
    spec = plan(topics={"options": {"late": {"retention.ms": "5", "min.insync.replicas": "2"}}})["late"]
    assert (spec.options["retention.ms"], spec.options["min.insync.replicas"]) == ("5", "2")
    assert {"retention.ms", "min.insync.replicas"} <= spec.verified


def test_a_topic_that_is_as_planned_has_no_differences() -> None:
    spec = plan()["windows"]
    assert list(differences(spec, Found(spec.partitions, 1, spec.options))) == []


@pytest.mark.parametrize("partitions", [1, 99])
def test_fewer_and_more_partitions_are_differences(partitions: int) -> None:
    spec = plan()["worker-input"]
    (difference,) = differences(spec, Found(partitions, 1, spec.options))
    assert f"p.worker-input: has {partitions} partitions, the configuration wants 64" in difference


def test_too_few_copies_and_wrong_options_are_differences_and_more_copies_are_not() -> None:
    spec = plan(topics={"replication_factor": 3})["aggregates"]
    found = list(differences(spec, Found(4, 2, {**spec.options, "cleanup.policy": "delete"})))
    assert ["has 2 copies" in found[0], "cleanup.policy is delete, should be compact" in found[1]] == [True, True]
    assert list(differences(spec, Found(4, 4, spec.options))) == []


def test_options_that_results_do_not_depend_on_may_be_changed_by_an_operator() -> None:
    spec = plan()["tuples"]
    assert list(differences(spec, Found(3, 1, {**spec.options, "retention.ms": "1"}))) == []
