"""The ACLs of the stages follow from the topology, and all output formats contain the same ACLs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from helpers.docs_blocks import ROOT, blocks
from helpers.stage_start import sections_for
from skewless import topology
from skewless.cli import main
from skewless.config import acls
from skewless.config.pipeline_settings import PipelineSettings

PAGE = ROOT / "docs" / "how-to" / "secured-cluster.md"


def settings(**parts: Any) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "raw"}, **parts})


COMMANDS = [acls.TOPICS, acls.STATUS, acls.READERS, acls.DEAD_LETTERS]
ROLES = [*(stage.name for stage in topology.needed_stages(settings())), *COMMANDS]
"""Roles of a pipeline without optional stages."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text("name: p\nsource: {topic: raw}\nkafka: {bootstrap_servers: 'k:9092'}\n")
    return path


def invoke(file: Path, *options: str) -> Result:
    return CliRunner().invoke(main.main, ["topics", "acls", "-f", str(file), *options], prog_name="skewless")


def printed(file: Path, *options: str) -> str:
    result = invoke(file, *options)
    assert result.exit_code == 0, result.output
    return result.output


def test_acls_of_a_pipeline_with_a_prefix_have_it_before_each_own_name() -> None:
    plain, prefixed = (acls.acls_for(settings(topics={"prefix": prefix})) for prefix in ("", "prod.team."))
    expected = {
        role: [
            binding if binding.name == "raw" else replace(binding, name=f"prod.team.{binding.name}")
            for binding in bindings
        ]
        for role, bindings in plain.items()
    }
    assert prefixed == expected


def settings_with(stage: str) -> PipelineSettings:
    """Return the settings of a pipeline that has the stage with this name."""
    return settings(**sections_for(topology.stage(stage)))


def rights_of(role: str) -> list[acls.AclBinding]:
    """Return the ACLs of a role; for a stage, in a pipeline that has it."""
    return acls.acls_for(settings() if role in COMMANDS else settings_with(role))[role]


def allowed(role: str, operation: str) -> set[str]:
    return {right.name for right in rights_of(role) if right.resource == "topic" and operation in right.operations}


@pytest.mark.parametrize("stage", topology.STAGES, ids=lambda stage: stage.name)
def test_acls_of_a_stage_allow_reading_inputs_and_state_and_writing_outputs(stage: topology.Stage) -> None:
    found = settings_with(stage.name)
    of = found.topic
    state = {of(stage.changelog)} if stage.changelog else set()
    tables = set(found.table_topics.values()) if "events" in stage.inputs else set()
    assert allowed(stage.name, "Read") == {*map(of, stage.inputs), *map(of, stage.outputs[:1])} | state | tables
    assert allowed(stage.name, "Write") == set(map(of, stage.outputs_of(found)))


def test_acls_of_an_aggregator_allow_writing_candidates_only_where_keys_are_ranked() -> None:
    ranked = acls.acls_for(settings_with("ranker"))["aggregator"]
    plain = {right.name for right in rights_of("aggregator")}
    assert {right.name for right in ranked} - plain == {"p.top-candidates"}


@pytest.mark.parametrize("stage", topology.STAGES, ids=lambda stage: stage.name)
def test_acls_of_a_stage_allow_no_topic_creation_and_its_own_identity_only(stage: topology.Stage) -> None:
    own = rights_of(stage.name)
    assert all(set(right.operations) <= {"Read", "Write", "Describe", "DescribeConfigs"} for right in own)
    identities = {right.resource: right.name for right in own if right.resource != "topic"}
    transactional = {"transactional id": f"p-{stage.name}-"} if stage.outputs else {}
    assert identities == {"group": f"p-{stage.name}"} | transactional


def test_acls_of_a_repartitioned_join_allow_its_own_topics_and_describing_those_of_the_user() -> None:
    own = acls.acls_for(settings_with("left"))["join"]
    named = {
        (right.name, right.operations) for right in own if "left" in right.name and "Write" not in right.operations
    }
    assert named == {("p.left-records", ("Read",)), ("p-left", ("Describe",))}
    assert {right.operations for right in own if right.resource == "group" and right.name != "p-join"} == {
        ("Describe",)
    }


@pytest.mark.parametrize("topic", ["aggregates", "partials"])
def test_acls_of_a_mirror_allow_reading_its_topic_and_its_own_group_only(topic: str) -> None:
    mirror = {"kafka": {"bootstrap_servers": "other:9092"}, "topic": topic}
    found = {(right.name, right.operations) for right in acls.acls_for(settings(mirror=mirror))["mirror"]}
    assert found == {(f"p.{topic}", ("Read",)), ("p-mirror", ("Read",))}


def test_acls_of_dead_letters_allow_replays_to_the_topics_that_are_read() -> None:
    assert allowed(acls.DEAD_LETTERS, "Read") == {"p.dead-letters", "raw", "p.replays"}
    assert allowed(acls.DEAD_LETTERS, "Write") == {"raw", "p.replays"}
    joining = acls.acls_for(settings_with("join"))[acls.DEAD_LETTERS]
    assert {"p-left", "p-right"} < {right.name for right in joining}


def test_acls_of_status_allow_reading_everything_and_no_change() -> None:
    assert allowed(acls.STATUS, "Read") == {"raw", "p."}
    operations = {operation for right in rights_of(acls.STATUS) for operation in right.operations}
    assert operations == {"Read", "Describe", "DescribeConfigs"}
    assert {right.operations for right in rights_of(acls.STATUS) if right.resource == "group"} == {("Describe",)}


@pytest.mark.parametrize("role", ["enricher", acls.TOPICS, acls.STATUS])  # all check the retention of tables
def test_acls_of_a_pipeline_with_tables_allow_describing_them(role: str) -> None:
    enriching = settings_with("enricher")
    rights = acls.acls_for(enriching)[role]
    described = {right.name for right in rights if not right.prefixed and "DescribeConfigs" in right.operations}
    assert described == set(enriching.table_topics.values()) != set()


def test_acls_of_readers_allow_reading_public_topics_only() -> None:
    public = {settings().topic(topic.name) for topic in topology.needed_topics(settings()) if topic.public}
    assert allowed(acls.READERS, "Read") == public
    assert allowed(acls.READERS, "Write") == set()


def test_acls_at_least_once_contain_a_transactional_id_for_replays_only() -> None:
    lesser = acls.acls_for(settings(transport={"guarantee": "at_least_once"}))
    identities = {role for role, allowed in lesser.items() for right in allowed if right.resource == "transactional id"}
    assert identities == {acls.DEAD_LETTERS}


def test_acls_one_principal_for_all_roles_contain_each_resource_once() -> None:
    merged = acls.acls_by_principal(settings(), dict.fromkeys(acls.ROLES, "one"))["one"]
    where = [(right.resource, right.name, right.prefixed) for right in merged]
    assert len(where) == len(set(where))
    (tuples,) = (right for right in merged if right.name == "p.tuples")
    assert tuples.operations == ("Read", "Write")


def test_acls_principals_are_named_by_prefix_or_one_by_one(file: Path) -> None:
    users = {line.split()[0] for line in printed(file).splitlines()[1:]}
    assert users == {f"p-{role}" for role in ROLES}
    users = {line.split()[0] for line in printed(file, "--principal-prefix", "").splitlines()[1:]}
    assert users == set(ROLES)
    mixed = printed(file, "--principal", "router=CN=r", "--principal", "CN=one")
    assert {line.split()[0] for line in mixed.splitlines()[1:]} == {"CN=one", "CN=r"}


def test_acls_command_role_without_a_name_is_refused(file: Path) -> None:
    result = invoke(file, "--principal", "router=")
    assert (result.exit_code, result.stderr) == (2, "error: --principal router=: has no name, write router=NAME\n")


def test_acls_command_format_kafka_acls_prints_a_command_for_every_acl(file: Path) -> None:
    commands = [shlex.split(line) for line in printed(file, "--format", "kafka-acls").splitlines()]
    rights = acls.acls_for(settings())
    assert len(commands) == sum(map(len, rights.values()))
    assert all(command[:3] == ["kafka-acls.sh", "--bootstrap-server", "k:9092"] for command in commands)
    prefixed = [command for command in commands if command[-1] == "prefixed"]
    assert len(prefixed) == sum(right.prefixed for allowed in rights.values() for right in allowed)


def test_acls_command_format_strimzi_prints_a_user_for_every_role(file: Path) -> None:
    users = list(yaml.safe_load_all(printed(file, "--format", "strimzi")))
    assert [user["metadata"]["name"] for user in users] == [f"p-{role}" for role in ROLES]
    for user, rights in zip(users, acls.acls_for(settings()).values(), strict=True):
        found = [
            (each["resource"]["name"], tuple(each["operations"])) for each in user["spec"]["authorization"]["acls"]
        ]
        assert found == [(right.name, right.operations) for right in rights]
        assert user["spec"]["authentication"] == {"type": "scram-sha-512"}


def test_acls_command_name_invalid_in_kubernetes_is_refused(file: Path) -> None:
    result = invoke(file, "--format", "strimzi", "--principal", "CN=one")
    assert result.exit_code == 2
    assert "CN=one cannot be the name of a KafkaUser" in result.stderr


def test_acls_page_pipeline_shows_the_output_of_the_command(tmp_path: Path) -> None:
    found = list(blocks(PAGE))
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(next(block.text for block in found if block.language == "yaml"))
    (shown,) = (block.text for block in found if block.name == "rights")
    assert shown == printed(pipeline)


def test_acls_of_a_join_allow_reading_both_topics_and_describing_them() -> None:
    sides = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")}
    rights = acls.acls_for(settings(join={**sides, "apart_s": 1}))
    readable = {right.name for right in rights["join"] if right.resource == "topic" and "Read" in right.operations}
    assert readable == {"left", "right", "p.joined", "p.join-changelog"}
    for role in ("join", acls.TOPICS, acls.STATUS):  # all check the retention of the joined topics
        assert {
            right.name for right in rights[role] if not right.prefixed and "DescribeConfigs" in right.operations
        } == {"left", "right"}
    described = {right.name for right in rights[acls.TOPICS] if not right.prefixed}
    assert described == {"left", "right", "raw"}
