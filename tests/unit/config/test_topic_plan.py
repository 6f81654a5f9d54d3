"""Required topics of a pipeline, and the differences of existing ones."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from skewless import topology
from skewless.algorithms.record_size import RECORD_BYTES
from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS, WatermarkTracker
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import check_stage, desired_topics, with_max_workers
from skewless.errors import ConfigurationError
from skewless.kafka.admin.client import TopicDescription
from skewless.kafka.admin.topic_options import ANY_TIME_MS, TIMESTAMP_LIMITS
from skewless.kafka.admin.topics import (
    TopicSpec,
    differences,
    replication_warnings,
    short_retentions,
    timestamp_warnings,
)

SETTINGS = PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}})


def plan(source_partitions: int = 3, **parts: Any) -> dict[str, TopicSpec]:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}, **parts})
    return {spec.name.removeprefix("p."): spec for spec in desired_topics(settings, source_partitions)}


def test_topic_plan_contains_every_topic_of_the_pipeline_without_the_source() -> None:
    assert list(plan()) == [topic.name for topic in topology.needed_topics(SETTINGS)]


def test_topic_plan_partition_counts_follow_the_source_and_the_settings() -> None:
    expected = plan(7, worker_input={"max_workers": 9}, topics={"aggregator_partitions": 5})
    counts = {"source": 7, "max_workers": 9, "aggregator": 5, "one": 1}
    assert {name: spec.partitions for name, spec in expected.items()} == {
        topic.name: counts[topic.partitions] for topic in topology.needed_topics(SETTINGS)
    }


TOO_MANY = "topic {} has 3001 partitions, the maximum is 3000"


def test_topic_plan_source_with_too_many_partitions_is_refused() -> None:
    assert plan(MAX_SOURCE_PARTITIONS)["tuples"].partitions == MAX_SOURCE_PARTITIONS
    with pytest.raises(ConfigurationError, match=TOO_MANY.format("p.tuples")):
        plan(MAX_SOURCE_PARTITIONS + 1)


@pytest.mark.parametrize("stage", topology.needed_stages(SETTINGS), ids=lambda stage: stage.name)
def test_check_stage_source_with_too_many_partitions_is_refused(stage: topology.Stage) -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}})
    counts = dict.fromkeys((*map(settings.topic, stage.inputs), "p.tuples"), MAX_SOURCE_PARTITIONS + 1)
    with pytest.raises(ConfigurationError, match=TOO_MANY.format("p.tuples")):
        check_stage(settings, stage, counts)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"topic": "a", "skip_to": {"2": 5}}, "source.skip_to.2: topic a has 2 partitions; correct the name"),
        (
            {"topics": ["a", "b"], "skip_to": {"a/1": 5, "b/1": 5}},
            "source.skip_to.b/1: topic b has 1 partitions; correct the name",
        ),
        (
            {"topics": {"match": "."}, "skip_to": {"b/0": 5, "c/0": 5}},
            "source.skip_to.c/0: topic c does not exist; correct the name",
        ),
    ],
    ids=["number", "list", "pattern"],
)
def test_check_stage_partition_of_skip_to_that_does_not_exist_is_refused(source: dict[str, Any], problem: str) -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": source})
    counts = {"a": 2, "b": 1, "p.tuples": 2}
    with pytest.raises(ConfigurationError) as caught:
        check_stage(settings, topology.stage("splitter"), counts)
    (found,) = caught.value.problems
    assert found.startswith(problem)
    check_stage(settings, topology.stage("splitter"), counts | {"a": 3, "b": 2, "c": 1, "p.tuples": 3})


def unset(workers: int) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}, "router": {"workers": workers}})


@pytest.mark.parametrize(
    ("counts", "committed", "expected"),
    [({}, None, 16), ({"p.worker-input": 64}, None, 64), ({"p.worker-input": 64}, 32, 64), ({"mine": 3}, 32, 32)],
)
def test_max_workers_unset_are_those_of_the_topic_or_of_the_last_run(
    counts: dict[str, int], committed: int | None, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    resolved = with_max_workers(unset(8), counts, lambda: committed)
    assert resolved.worker_input.max_workers == expected
    noted = [record.message for record in caplog.records]
    assert noted == ([] if expected == 16 else [f"worker_input.max_workers is unset, so it is {expected} as before"])
    assert with_max_workers(resolved, {"p.worker-input": 5}) is resolved


def test_max_workers_unset_below_the_workers_are_named() -> None:
    assert with_max_workers(unset(40), {"p.worker-input": 64}).router.workers == 40
    with pytest.raises(ConfigurationError, match=r"40 is more than the 32 partitions of topic p\.worker-input"):
        with_max_workers(unset(40), {"p.worker-input": 32})
    with pytest.raises(ConfigurationError, match=r"40 .* default of worker_input\.max_workers, 16; set .* at least 40"):
        with_max_workers(unset(40), {})


def test_checkpoint_of_the_largest_number_of_workers_fits() -> None:
    PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}, "worker_input": {"max_workers": 1024}})
    WatermarkTracker(1024)
    with pytest.raises(ValidationError, match="max_workers"):
        PipelineSettings.model_validate(
            {"name": "p", "source": {"topic": "mine"}, "worker_input": {"max_workers": MAX_SOURCE_PARTITIONS + 1}}
        )


@pytest.mark.parametrize("topic", topology.needed_topics(SETTINGS), ids=lambda topic: topic.name)
def test_topic_plan_timestamps_far_from_the_clock_are_allowed(topic: topology.Topic) -> None:
    options = plan()[topic.name].options
    assert options["message.timestamp.type"] == "CreateTime"
    assert options["message.timestamp.before.max.ms"] == options["message.timestamp.after.max.ms"] == ANY_TIME_MS


def test_topic_plan_retention_of_results_deletes_old_ones_and_keeps_compaction() -> None:
    week, year = (plan(topics={"results_retention_s": days * 86_400}) for days in (1, 365))
    options = week["aggregates"].options
    assert (options["cleanup.policy"], options["retention.ms"], options["segment.ms"]) == (
        "compact,delete",
        "86400000",
        "86400000",
    )
    assert year["aggregates"].options["segment.ms"] == "604800000"
    assert {"cleanup.policy", "retention.ms"} <= week["aggregates"].verified
    others = {name: spec for name, spec in week.items() if name != "aggregates"}
    assert others == {name: spec for name, spec in plan().items() if name != "aggregates"}
    assert plan()["aggregates"].options["cleanup.policy"] == "compact"


def test_topic_plan_cleanup_policy_in_another_order_is_no_difference() -> None:
    spec = plan(topics={"results_retention_s": 60})["aggregates"]
    existing = TopicDescription(spec.partitions, 1, {**spec.options, "cleanup.policy": "delete,compact"})
    assert list(differences(spec, existing)) == []
    changed = TopicDescription(spec.partitions, 1, {**spec.options, "cleanup.policy": "compact", "retention.ms": "1"})
    policy, retention = differences(spec, changed)
    assert policy.endswith("--entity-name p.aggregates --add-config cleanup.policy=[compact,delete]`")
    assert "retention.ms is 1, should be 60000" in retention


@pytest.mark.parametrize(("found", "is_short"), [("59999", True), ("60000", False), ("60001", False), ("-1", False)])
def test_short_retentions_are_below_the_minimum(found: str, *, is_short: bool) -> None:
    lines = list(short_retentions({"p.tuples": 60_000}, {"p.tuples": TopicDescription(1, 1, {"retention.ms": found})}))
    assert len(lines) == is_short
    assert all(line.endswith("--entity-name p.tuples --add-config retention.ms=60000`") for line in lines)


def test_topic_plan_retention_by_age_applies_to_internal_topics_only() -> None:
    expected = plan(topics={"internal_retention_s": 120})
    assert expected["tuples"].options["retention.ms"] == "120000"
    assert expected["late"].options["retention.ms"] == "-1"


@pytest.mark.parametrize("topic", topology.needed_topics(SETTINGS), ids=lambda topic: topic.name)
def test_topic_plan_retention_by_bytes_is_disabled_and_verified_for_internal_topics(topic: topology.Topic) -> None:
    spec = plan()[topic.name]
    deleted = topic.cleanup == "delete"
    assert spec.options.get("retention.bytes") == ("-1" if deleted else None)
    trimmed = TopicDescription(spec.partitions, 1, {**spec.options, "retention.bytes": "1073741824"})
    found = list(differences(spec, trimmed))
    assert bool(found) == (deleted and not topic.public)
    assert all("retention.bytes is 1073741824, should be -1; `kafka-configs.sh" in line for line in found)


@pytest.mark.parametrize("topic", topology.needed_topics(SETTINGS), ids=lambda topic: topic.name)
def test_topic_plan_large_records_are_allowed_and_verified_for_internal_topics(topic: topology.Topic) -> None:
    spec = plan()[topic.name]
    assert int(spec.options["max.message.bytes"]) >= 2 * RECORD_BYTES
    assert ("max.message.bytes" in spec.verified) == (not topic.public)
    small = TopicDescription(spec.partitions, 1, {**spec.options, "max.message.bytes": "1048588"})
    large = TopicDescription(spec.partitions, 1, {**spec.options, "max.message.bytes": "20000000"})
    reported = list(differences(spec, small))
    assert [line for line in reported if "max.message.bytes is 1048588, should be at least 8388608" not in line] == []
    assert bool(reported) == (not topic.public)
    assert list(differences(spec, large)) == []


@pytest.mark.parametrize(
    "name", ["router-state", "aggregator-changelog", "aggregates", "observer-changelog", "replays"]
)
def test_topic_plan_state_and_result_topics_are_compacted_with_small_segments(name: str) -> None:
    options = plan()[name].options
    assert options["cleanup.policy"] == "compact"
    assert options["segment.bytes"] == "67108864"
    assert "retention.ms" not in options


def test_topic_plan_options_of_the_user_override() -> None:
    spec = plan(topics={"options": {"late": {"retention.ms": "5", "min.insync.replicas": "2"}}})["late"]
    assert (spec.options["retention.ms"], spec.options["min.insync.replicas"]) == ("5", "2")
    assert {"retention.ms", "min.insync.replicas"} <= spec.verified


OLDER_LIMIT = "message.timestamp.difference.max.ms"


def with_limits(spec: TopicSpec, **limits: str) -> TopicDescription:
    """Return the topic on brokers that do not know the limits of timestamps, but these options."""
    options = {name: value for name, value in spec.options.items() if name not in TIMESTAMP_LIMITS}
    return TopicDescription(spec.partitions, 1, {**options, **limits})


def test_topic_differences_brokers_before_kafka_3_6_are_compared_by_the_older_option() -> None:
    spec = plan()["late"]
    unlimited, limited = (with_limits(spec, **{OLDER_LIMIT: value}) for value in (ANY_TIME_MS, "5"))
    assert list(differences(spec, unlimited)) == list(timestamp_warnings({"p.late": unlimited})) == []
    (difference,) = differences(spec, limited)
    assert difference.startswith(f"p.late: {OLDER_LIMIT} is 5, should be {ANY_TIME_MS}; `kafka-configs.sh")


def test_topic_differences_brokers_without_limits_of_timestamps_are_a_warning() -> None:
    spec = plan()["late"]
    existing = with_limits(spec)
    assert list(differences(spec, existing)) == []
    (warning,) = timestamp_warnings({"p.late": existing, "p.tuples": existing})
    assert warning.startswith("the brokers do not know message.timestamp.after.max.ms and message.timestamp.before")


def test_topic_differences_option_of_the_user_that_brokers_do_not_know_is_named() -> None:
    options = {"message.timestamp.after.max.ms": "5", "segment.bytes": "1048576"}
    spec = plan(topics={"options": {"aggregates": options}})["aggregates"]
    assert not spec.optional & options.keys()
    existing = with_limits(spec, **{OLDER_LIMIT: ANY_TIME_MS})
    (difference,) = differences(spec, existing)
    assert "message.timestamp.after.max.ms is None, should be 5" in difference


def test_topic_differences_topic_as_planned_has_none() -> None:
    spec = plan()["aggregator-changelog"]
    assert list(differences(spec, TopicDescription(spec.partitions, 1, spec.options))) == []


@pytest.mark.parametrize("partitions", [1, 99])
def test_topic_differences_fewer_or_more_partitions_are_named(partitions: int) -> None:
    spec = plan()["worker-input"]
    (difference,) = differences(spec, TopicDescription(partitions, 1, spec.options))
    assert f"p.worker-input: has {partitions} partitions, the configuration wants 16" in difference


def test_topic_differences_too_few_replicas_are_named_and_more_are_accepted() -> None:
    spec = plan(topics={"replication_factor": 3})["aggregates"]
    found = list(differences(spec, TopicDescription(4, 2, {**spec.options, "cleanup.policy": "delete"})))
    assert ["has 2 copies" in found[0], "cleanup.policy is delete, should be compact" in found[1]] == [True, True]
    assert list(differences(spec, TopicDescription(4, 4, spec.options))) == []


@pytest.mark.parametrize("replicas", [1, 3])
def test_topic_differences_unset_replication_factor_accepts_any_number(replicas: int) -> None:
    spec = plan()["aggregates"]
    assert spec.replication_factor is None
    assert list(differences(spec, TopicDescription(4, replicas, spec.options))) == []


def test_replication_warnings_one_replica_on_three_brokers_is_named_with_the_remedy() -> None:
    topics = {"p.late": TopicDescription(4, 1, {}), "p.tuples": TopicDescription(4, 3, {})}
    (warning,) = replication_warnings(topics, brokers=3)
    assert warning.startswith("topic p.late has 1 replica on a cluster of 3 brokers: ")
    assert "set topics.replication_factor to 3 before topics are created" in warning


def test_replication_warnings_one_replica_on_one_broker_is_no_warning() -> None:
    assert list(replication_warnings({"p.late": TopicDescription(4, 1, {})}, brokers=1)) == []


def test_replication_warnings_topics_with_replicas_out_of_sync_are_named() -> None:
    topics = {name: TopicDescription(4, 3, {}, under_replicated=2) for name in ("p.late", "p.aggregates")}
    (warning,) = replication_warnings(topics, brokers=3)
    assert warning.startswith("topics p.aggregates, p.late have replicas that are not in sync: ")


def test_topic_differences_options_without_effect_on_results_are_accepted() -> None:
    spec = plan()["tuples"]
    assert list(differences(spec, TopicDescription(3, 1, {**spec.options, "retention.ms": "1"}))) == []
