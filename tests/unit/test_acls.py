"""The rights of the stages follow from the topology, and every format says the same."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from docs_blocks import ROOT, blocks
from skewless import acls, cli, topology
from skewless.settings import PipelineSettings

PAGE = ROOT / "docs" / "how-to" / "secured-cluster.md"


def settings(**parts: Any) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "raw"}, **parts})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text("name: p\nsource: {topic: raw}\nkafka: {bootstrap_servers: 'k:9092'}\n")
    return path


def invoke(file: Path, *options: str) -> Result:
    return CliRunner().invoke(cli.main, ["topics", "acls", "-f", str(file), *options], prog_name="skewless")


def printed(file: Path, *options: str) -> str:
    result = invoke(file, *options)
    assert result.exit_code == 0, result.output
    return result.output


def allowed(role: str, operation: str) -> set[str]:
    return {
        right.name
        for right in acls.rights(settings())[role]
        if right.resource == "topic" and operation in right.operations
    }


@pytest.mark.parametrize("stage", topology.STAGES, ids=lambda stage: stage.name)
def test_a_stage_reads_its_source_and_state_and_writes_its_sinks(stage: topology.Stage) -> None:
    of = settings().topic
    state = {of(stage.changelog)} if stage.changelog else set()
    assert allowed(stage.name, "Read") == {of(stage.source), of(stage.sinks[0])} | state
    assert allowed(stage.name, "Write") == set(map(of, stage.sinks))


@pytest.mark.parametrize("stage", topology.STAGES, ids=lambda stage: stage.name)
def test_no_stage_may_make_topics_or_take_another_ones_identity(stage: topology.Stage) -> None:
    mine = acls.rights(settings())[stage.name]
    assert all(set(right.operations) <= {"Read", "Write", "Describe"} for right in mine)
    identities = {right.resource: right.name for right in mine if right.resource != "topic"}
    assert identities == {"group": f"p-{stage.name}", "transactional id": f"p-{stage.name}-"}


def test_readers_see_what_is_public_and_nothing_else() -> None:
    public = {settings().topic(topic.name) for topic in topology.TOPICS if topic.public}
    assert allowed(acls.READERS, "Read") == public
    assert allowed(acls.READERS, "Write") == set()


def test_at_least_once_has_no_transactional_ids() -> None:
    lesser = acls.rights(settings(transport={"guarantee": "at_least_once"}))
    assert all(right.resource != "transactional id" for allowed in lesser.values() for right in allowed)


def test_one_user_for_all_gets_each_right_once() -> None:
    merged = acls.by_principal(settings(), dict.fromkeys(acls.ROLES, "one"))["one"]
    where = [(right.resource, right.name, right.prefixed) for right in merged]
    assert len(where) == len(set(where))
    (tuples,) = (right for right in merged if right.name == "p.tuples")
    assert tuples.operations == ("Read", "Write")


def test_users_are_named_by_the_prefix_or_one_by_one(file: Path) -> None:
    users = {line.split()[0] for line in printed(file).splitlines()[1:]}
    assert users == {f"p-{role}" for role in acls.ROLES}
    users = {line.split()[0] for line in printed(file, "--principal-prefix", "").splitlines()[1:]}
    assert users == set(acls.ROLES)
    mixed = printed(file, "--principal", "router=CN=r", "--principal", "CN=one")
    assert {line.split()[0] for line in mixed.splitlines()[1:]} == {"CN=one", "CN=r"}


def test_a_role_without_a_name_is_a_mistake(file: Path) -> None:
    result = invoke(file, "--principal", "router=")
    assert (result.exit_code, result.stderr) == (2, "error: --principal router=: has no name, write router=NAME\n")


def test_kafka_acls_has_a_command_for_every_right(file: Path) -> None:
    commands = [shlex.split(line) for line in printed(file, "--format", "kafka-acls").splitlines()]
    rights = acls.rights(settings())
    assert len(commands) == sum(map(len, rights.values()))
    assert all(command[:3] == ["kafka-acls.sh", "--bootstrap-server", "k:9092"] for command in commands)
    prefixed = [command for command in commands if command[-1] == "prefixed"]
    assert len(prefixed) == sum(right.prefixed for allowed in rights.values() for right in allowed)


def test_strimzi_has_a_user_for_every_role_with_the_same_rights(file: Path) -> None:
    users = list(yaml.safe_load_all(printed(file, "--format", "strimzi")))
    assert [user["metadata"]["name"] for user in users] == [f"p-{role}" for role in acls.ROLES]
    for user, rights in zip(users, acls.rights(settings()).values(), strict=True):
        found = [
            (each["resource"]["name"], tuple(each["operations"])) for each in user["spec"]["authorization"]["acls"]
        ]
        assert found == [(right.name, right.operations) for right in rights]
        assert user["spec"]["authentication"] == {"type": "scram-sha-512"}


def test_a_name_that_kubernetes_refuses_is_a_mistake(file: Path) -> None:
    result = invoke(file, "--format", "strimzi", "--principal", "CN=one")
    assert result.exit_code == 2
    assert "CN=one cannot be the name of a KafkaUser" in result.stderr


def test_the_page_shows_what_the_command_prints_for_its_pipeline(tmp_path: Path) -> None:
    found = list(blocks(PAGE))
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(next(block.text for block in found if block.language == "yaml"))
    (shown,) = (block.text for block in found if block.name == "rights")
    assert shown == printed(pipeline)
