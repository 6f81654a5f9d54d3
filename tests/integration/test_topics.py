"""Topics on a real broker: created once, always verified, never changed."""

from __future__ import annotations

import json
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from helpers.kafka import STAGES, create_topics
from helpers.waiting import WAIT_S
from skewless import topology
from skewless.cli.main import main
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import resolve
from skewless.errors import BrokerError, CheckFailedError, ConfigurationError, UnreachableError
from skewless.kafka.admin.client import Admin
from skewless.kafka.admin.topic_options import ANY_TIME_MS, TIMESTAMP_LIMITS, known_option


@pytest.fixture
def settings(broker: str) -> PipelineSettings:
    """Return a pipeline whose source topic exists, with 3 partitions. Its other topics do not exist."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    create_topics(broker, {f"{name}-source": 3})
    return pipeline(broker, name)


def pipeline(bootstrap: str, name: str, **parts: Any) -> PipelineSettings:
    kafka = {"bootstrap_servers": bootstrap, "connect_timeout_s": WAIT_S, **parts.pop("kafka", {})}
    small = {"worker_input": {"max_workers": 5}, "router": {"workers": 2}, "topics": {"aggregator_partitions": 2}}
    return PipelineSettings.model_validate(
        {"name": name, "source": {"topic": f"{name}-source"}, "kafka": kafka, **small, **parts}
    )


def names(settings: PipelineSettings) -> tuple[str, ...]:
    return tuple(settings.topic(topic.name) for topic in topology.needed_topics(settings))


def partition_count(settings: PipelineSettings, topic: str) -> int:
    return Admin(settings.kafka).partition_counts()[topic]


def test_topics_apply_without_topics_creates_each_as_declared(settings: PipelineSettings) -> None:
    assert topic_plan.apply(settings).created == names(settings)
    assert partition_count(settings, settings.topic("tuples")) == 3
    assert partition_count(settings, settings.topic("worker-input")) == 5
    assert partition_count(settings, settings.topic("partials")) == 2
    assert partition_count(settings, settings.topic("distribution")) == 1
    resource = ConfigResource(ConfigResource.Type.TOPIC, settings.topic("aggregator-changelog"))
    client = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    options = {name: entry.value for name, entry in client.describe_configs([resource])[resource].result().items()}
    assert options["cleanup.policy"] == "compact"
    assert options["max.message.bytes"] == "8388608"
    for option in TIMESTAMP_LIMITS:
        assert options[known_option(option, options) or option] == ANY_TIME_MS


def test_topics_apply_again_creates_nothing_and_check_passes(settings: PipelineSettings) -> None:
    topic_plan.apply(settings)
    for report in (topic_plan.apply(settings), topic_plan.check(settings)):
        assert (report.created, report.existing, report.warnings) == ((), names(settings), ())


def test_topics_apply_twice_at_once_succeeds_both_times(settings: PipelineSettings) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(topic_plan.apply, [settings, settings])
    assert sorted({*first.created, *second.created}) == sorted(names(settings))
    assert not set(first.created) & set(second.created)


def test_topics_check_without_topics_lists_each_and_creates_none(settings: PipelineSettings) -> None:
    for _ in range(2):
        with pytest.raises(CheckFailedError) as raised:
            topic_plan.check(settings)
        assert [name for name in names(settings) if f"{name}: is missing" not in str(raised.value)] == []


def test_topics_apply_changed_number_of_workers_is_refused_and_creates_nothing(settings: PipelineSettings) -> None:
    bootstrap = settings.kafka.bootstrap_servers
    create_topics(bootstrap, {settings.topic("worker-input"): 6})
    with pytest.raises(CheckFailedError, match=r"worker-input: has 6 partitions, the configuration wants 5"):
        topic_plan.apply(settings)
    with pytest.raises(BrokerError):
        topic_plan.require_topic(settings, "tuples")


@pytest.mark.parametrize("stage", STAGES)
def test_run_command_partition_count_other_than_configured_is_refused(settings: PipelineSettings, stage: str) -> None:
    """The case without `skewless topics check`: `skewless run` checks too."""
    topic_plan.apply(settings)
    row, counts = topology.stage(stage), Admin(settings.kafka).partition_counts()
    expected = {"source": 3, "tuples": 3, "worker-input": 5, "partials": 2}
    start = resolve(row, settings, drain=False)
    assert {name: start.count_partitions(name) for name in row.inputs} == {name: expected[name] for name in row.inputs}
    for parts, path, wants, has in (
        ({"topics": {"aggregator_partitions": 3}}, "topics.aggregator_partitions", 3, "partials has 2"),
        ({"worker_input": {"max_workers": 6}}, "worker_input.max_workers", 6, "worker-input has 5"),
    ):
        other = pipeline(settings.kafka.bootstrap_servers, settings.name, **parts)
        with pytest.raises(ConfigurationError) as caught:
            topic_plan.check_stage(other, row, counts)
        (problem,) = caught.value.problems
        assert problem.startswith(f"{path}: is {wants}, but topic {settings.topic(has)}")
        assert "set it back, or give the pipeline another name" in problem


def test_topics_apply_unset_max_workers_are_those_of_the_existing_topic(settings: PipelineSettings) -> None:
    bootstrap, topic = settings.kafka.bootstrap_servers, settings.topic("worker-input")
    topic_plan.apply(pipeline(bootstrap, settings.name, worker_input={"max_workers": 20}, router={"workers": 18}))
    unset = pipeline(bootstrap, settings.name, worker_input={}, router={"workers": 18})
    for report in (topic_plan.check(unset), topic_plan.apply(unset)):
        assert report.topics[topic].partitions == 20


def test_topics_apply_unset_max_workers_of_a_new_pipeline_are_the_default(settings: PipelineSettings) -> None:
    bootstrap = settings.kafka.bootstrap_servers
    with pytest.raises(ConfigurationError, match=r"worker_input\.max_workers to at least 17"):
        topic_plan.apply(pipeline(bootstrap, settings.name, worker_input={}, router={"workers": 17}))
    topic_plan.apply(pipeline(bootstrap, settings.name, worker_input={}))
    assert partition_count(settings, settings.topic("worker-input")) == 16


def test_topics_check_topic_with_retention_by_bytes_is_named(settings: PipelineSettings) -> None:
    topic_plan.apply(settings)
    client = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
    name = settings.topic("worker-input")
    limit = ConfigEntry("retention.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[limit])
    client.incremental_alter_configs([resource])[resource].result()
    expected = f"{name}: retention.bytes is 1048576, should be -1; `kafka-configs.sh --alter"
    for verify in (topic_plan.check, topic_plan.apply):
        with pytest.raises(CheckFailedError, match=expected):
            verify(settings)


def test_topics_apply_existing_topic_with_wrong_options_is_named_with_each(settings: PipelineSettings) -> None:
    wrong = {"message.timestamp.type": "LogAppendTime"}
    create_topics(settings.kafka.bootstrap_servers, {settings.topic("aggregates"): 2}, **wrong)
    with pytest.raises(CheckFailedError) as raised:
        topic_plan.apply(settings)
    assert "aggregates: cleanup.policy is delete, should be compact" in str(raised.value)
    assert "aggregates: message.timestamp.type is LogAppendTime, should be CreateTime" in str(raised.value)


def test_topics_options_of_the_user_override_and_are_verified(settings: PipelineSettings) -> None:
    topic_plan.apply(settings)
    options = {"late": {"retention.ms": "60000"}}
    changed = pipeline(
        settings.kafka.bootstrap_servers, settings.name, topics={"aggregator_partitions": 2, "options": options}
    )
    with pytest.raises(CheckFailedError, match=r"late: retention.ms is -1, should be 60000"):
        topic_plan.check(changed)


def test_topics_apply_missing_source_topic_is_named_with_a_remedy(broker: str) -> None:
    with pytest.raises(BrokerError, match=r"topic nowhere-source does not exist at .*--create --topic nowhere-source"):
        topic_plan.apply(pipeline(broker, "nowhere"))


def test_topics_apply_more_replicas_than_brokers_raises_broker_error(broker: str, settings: PipelineSettings) -> None:
    greedy = pipeline(broker, settings.name, topics={"replication_factor": 9})
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        topic_plan.apply(greedy)


def test_topics_check_unknown_librdkafka_option_is_a_configuration_error(broker: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no\.such\.option"):
        topic_plan.check(pipeline(broker, "any", kafka={"options": {"no.such.option": 1}}))


def test_topics_apply_unreachable_broker_raises_with_its_address_silently(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(UnreachableError, match=address):
        topic_plan.apply(pipeline(address, "any", kafka={"connect_timeout_s": 0.6}))
    assert capfd.readouterr() == ("", "")


def test_topics_retention_of_results_is_created_and_compared(settings: PipelineSettings) -> None:
    bounded = settings.model_copy(
        update={"topics": settings.topics.model_copy(update={"results_retention_s": 86_400.0})}
    )
    topic_plan.apply(bounded)
    described = Admin(settings.kafka).describe([settings.topic("aggregates")])[settings.topic("aggregates")]
    assert set(described.options["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert described.options["retention.ms"] == described.options["segment.ms"] == "86400000"
    topic_plan.check(bounded)
    with pytest.raises(CheckFailedError, match=r"aggregates: cleanup\.policy is .*, should be compact; "):
        topic_plan.check(settings)


def test_topics_retention_of_internal_topics_is_compared_as_a_minimum(settings: PipelineSettings) -> None:
    def kept_for(seconds: float) -> PipelineSettings:
        return settings.model_copy(
            update={"topics": settings.topics.model_copy(update={"internal_retention_s": seconds})}
        )

    topic_plan.apply(kept_for(3_600))
    assert topic_plan.check(kept_for(1_800)).warnings == ()
    command = "retention.ms is 3600000, should be at least 7200000; `kafka-configs.sh --alter --entity-type topics "
    with pytest.raises(CheckFailedError) as caught:
        topic_plan.check(kept_for(7_200))
    internal = ("tuples", "worker-input", "partials")
    assert [line.split(": ")[0] for line in str(caught.value).split("\n  ")[1:]] == [*map(settings.topic, internal)]
    assert str(caught.value).count(command) == len(internal)
    assert len(topic_plan.apply(kept_for(7_200)).warnings) == len(internal)


def file_of(settings: PipelineSettings, folder: Path) -> str:
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(settings.model_dump(mode="json", exclude_unset=True)))
    return str(file)


def test_topics_apply_dry_run_creates_nothing_and_estimates_sizes(settings: PipelineSettings, tmp_path: Path) -> None:
    command = ["topics", "apply", "-f", file_of(settings, tmp_path), "--dry-run"]
    planned = CliRunner().invoke(main, [*command, "--rate", "1000"])
    assert planned.exit_code == 0, planned.output
    own = names(settings)
    assert Admin(settings.kafka).partition_counts().keys().isdisjoint(own)
    lines = planned.stdout.splitlines()
    assert [line.split()[2] for line in lines[: len(own)]] == list(own)
    assert lines[0].endswith("tuples  3 partitions, replicas by default of the brokers")
    assert lines[len(own)] == f"in all {len(own)} topics, 28 partitions without replicas"
    assert "At 1,000 records/s with 10,000 keys of 16 bytes, one replica of" in lines
    table = {line.split()[0]: line.split()[1:] for line in lines[-1 - len(own) :]}
    assert list(table) == [*(topic.name for topic in topology.needed_topics(settings)), "all"]
    assert [name for name, cells in table.items() if cells == ["few", "records"]] == [
        "late",
        "hot-keys",
        "dead-letters",
        "replays",
    ]
    assert [name for name, cells in table.items() if cells[-1] == "grows"] == ["aggregates", "distribution"]


def test_topics_apply_dry_run_says_which_topics_exist(settings: PipelineSettings, tmp_path: Path) -> None:
    topic_plan.apply(settings)
    planned = CliRunner().invoke(main, ["topics", "apply", "-f", file_of(settings, tmp_path), "--dry-run"])
    *lines, _ = planned.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["exists"] * len(names(settings))
    assert lines[0].endswith("tuples  3 partitions, 1 replica")


def test_topics_apply_rate_without_dry_run_is_refused(settings: PipelineSettings, tmp_path: Path) -> None:
    refused = CliRunner().invoke(main, ["topics", "apply", "-f", file_of(settings, tmp_path), "--rate", "1"])
    assert (refused.exit_code, "add --dry-run" in refused.output) == (2, True)
    assert Admin(settings.kafka).partition_counts().keys().isdisjoint(names(settings))
