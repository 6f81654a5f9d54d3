"""Bad input of the commands that need only a topic or a pipeline file: one line, the exit code, and nothing is left."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from helpers.kafka import create_topics, create_with
from helpers.waiting import WAIT_S
from integration.secured import Secured
from skewless.cli.main import main

pytestmark = pytest.mark.broker
NOWHERE = "127.0.0.1:1"
"""Address at which nothing listens."""
PASSWORD = "of-a-stranger"  # noqa: S105 - of a broker that lives as long as these tests
COMMANDS = (
    "inspect TOPIC --html page.html",
    "init TOPIC -o new.yaml --yes",
    "results",
    "status",
    "top",
    "dead-letters list",
    "dead-letters show TOPIC/0/0",
    "dead-letters replay",
    "reset --delete --yes",
    "plan --topic TOPIC --out report",
    "plan --out report",
)
"""Each runs in a folder with pipeline.yaml, whose source is TOPIC. The environment has the section `kafka`."""


class Folder:
    """A folder with a pipeline file for a topic, and the commands that run in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, name: str | None = None) -> None:
        self._monkeypatch, self._path = monkeypatch, path
        self.name = name or f"bad-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.name}-source"
        document = {"name": self.name, "source": {"topic": self.topic}, "splitter": {"key": {"field": "user"}}}
        (path / "pipeline.yaml").write_text(json.dumps(document))
        monkeypatch.chdir(path)
        self.connect(connect_timeout_s="60")

    def connect(self, **kafka: str) -> None:
        """Set settings of the section `kafka`, as sasl__username."""
        for setting, value in kafka.items():
            self._monkeypatch.setenv(f"SKEWLESS__KAFKA__{setting.upper()}", value)

    def run(self, command: str) -> Result:
        return CliRunner().invoke(main, command.replace("TOPIC", self.topic).split(" "))

    def refused(self, command: str, code: int) -> str:
        """Run a command that must end with this code, one line of error, and no file."""
        result = self.run(command)
        lines = result.stderr.splitlines()
        assert (result.exit_code, result.stdout, len(lines)) == (code, "", 1), result.output
        assert [file.name for file in self._path.iterdir()] == ["pipeline.yaml"]
        return lines[0].removeprefix("error: ")

    def left(self, options: dict[str, str | int]) -> set[str]:
        """Return the topics and groups of this test that exist."""
        admin = AdminClient(options)
        groups = {group.group_id for group in admin.list_consumer_groups().result().valid}
        return {name for name in groups | admin.list_topics(timeout=WAIT_S).topics.keys() if self.name in name}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Folder:
    return Folder(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def secured(secured_server: Secured) -> Secured:
    secured_server.add_users({"stranger": PASSWORD})
    return secured_server


@pytest.mark.parametrize("command", COMMANDS)
def test_command_without_a_broker_names_the_address(folder: Folder, command: str) -> None:
    folder.connect(bootstrap_servers=NOWHERE, connect_timeout_s="1")
    assert folder.refused(command, 3).startswith(f"no Kafka broker answers at {NOWHERE}")


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("reset")])
def test_command_of_a_topic_that_does_not_exist_names_the_topic(broker: str, folder: Folder, command: str) -> None:
    folder.connect(bootstrap_servers=broker)
    problem = folder.refused(command, 3)
    assert problem.startswith(f"topic {folder.name}")
    assert f" does not exist at {broker}" in problem
    assert folder.left({"bootstrap.servers": broker}) == set()


def test_reset_of_a_pipeline_that_never_ran_removes_nothing(broker: str, folder: Folder) -> None:
    folder.connect(bootstrap_servers=broker)
    result = folder.run("reset --delete --yes")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"pipeline {folder.name} has no topics, groups or rows: nothing to remove\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_command_without_rights_names_what_to_grant(secured: Secured, folder: Folder, command: str) -> None:
    create_topics_of(secured, folder)
    folder.connect(
        bootstrap_servers=secured.bootstrap, security_protocol="SASL_SSL", sasl__mechanism="SCRAM-SHA-512",
        sasl__username="stranger", sasl__password=PASSWORD, tls__ca=str(secured.ca),
    )  # fmt: skip
    problem = folder.refused(command, 3)
    assert problem.startswith("not allowed while looking for topic ")
    assert "grant Describe" in problem
    assert PASSWORD not in problem
    assert folder.left(secured.admin_options()) == {folder.topic}


def create_topics_of(secured: Secured, folder: Folder) -> None:
    create_with(AdminClient(secured.admin_options()), {folder.topic: 1})


@pytest.fixture(scope="module")
def unreadable_pipeline(broker: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Create a pipeline with records in its source and in its public topics that nothing can read. Returns its name."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = Folder(monkeypatch, tmp_path_factory.mktemp("unreadable"))
        folder.connect(bootstrap_servers=broker)
        create_topics(broker, {folder.topic: 2})
        applied = folder.run("topics apply")
        assert applied.exit_code == 0, applied.output
    write(broker, folder.topic, [b"\xff\xfe\x00" * number for number in range(1, 50)])
    for topic in ("aggregates", "dead-letters", "distribution", "late", "hot-keys"):
        write(broker, f"{folder.name}.{topic}", [b"\xff\xfe\x00", b"{", b"[]"])
    return folder.name


@pytest.mark.parametrize("command", ["results", "results --follow", "dead-letters list", "dead-letters replay"])
def test_command_before_the_first_run_names_the_command_that_creates_the_topics(
    broker: str, folder: Folder, command: str
) -> None:
    folder.connect(bootstrap_servers=broker)
    create_topics(broker, {folder.topic: 1})
    assert folder.refused(command, 3).endswith(": `skewless up` and `skewless topics apply` create it")


@pytest.fixture
def unreadable(broker: str, unreadable_pipeline: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Folder:
    folder = Folder(monkeypatch, tmp_path, unreadable_pipeline)
    folder.connect(bootstrap_servers=broker)
    return folder


def write(broker: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, b"\xff", partition=0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("init TOPIC -o new.yaml --yes", "no field can be the key; its records are binary; docs/how-to/read"),
        ("dead-letters show TOPIC/0/0", "no dead letter of "),
        ("plan --topic TOPIC --out new/report", "records need a key in UTF-8 (`skewless init` writes a file)"),
        ("plan --out report", "none of 49 records can be read: check splitter"),
    ],
)
def test_command_on_records_that_cannot_be_read_exits_with_1(unreadable: Folder, command: str, problem: str) -> None:
    assert problem in unreadable.refused(command, 1)


def test_results_among_records_that_cannot_be_read_are_shown_with_a_warning(broker: str, unreadable: Folder) -> None:
    topic, warning = f"{unreadable.name}.aggregates", "partition 0 offset 0, partition 0 offset 1, partition 0 offset 2"
    reason = "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    result = {"key": "a", "window_start": 0, "window_end": 60_000, "count": 7, "sum": 0, "revision": 0}
    write(broker, topic, [json.dumps(result).encode()])
    shown = unreadable.run("results --window all")
    assert (shown.exit_code, shown.stdout.split()) == (0, ["1970-01-01T00:00:00Z", "a", "count", "7", "sum", "0"])
    assert shown.stderr == f"warning: topic {topic} has records that are not results: {warning}; the first: {reason}\n"


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        ("inspect TOPIC", 0, "format      binary"),
        ("status", 1, "splitter"),
        ("dead-letters list", 0, "no dead letters"),
        ("dead-letters replay", 0, "0 records replayed to "),
        ("reset --to-start --dry-run", 0, "and creates the topics again"),
    ],
)
def test_command_on_records_that_cannot_be_read_shows_what_it_can(
    unreadable: Folder, command: str, code: int, output: str
) -> None:
    result = unreadable.run(command)
    assert (result.exit_code, output in result.stdout) == (code, True), result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        ("inspect TOPIC --key user.id", 2, "--key: no record has a field user.id; fields: name"),
        ("init TOPIC --key user.id -o new.yaml", 2, "--key: no record has a field user.id; fields: name"),
        ("plan --out report", 1, "none of 20 records can be read: check splitter"),
        ("results --by user", 2, "--by: user is not a result of this pipeline: count"),
        ("inspect TOPIC --fail-if max_share", 2, "--fail-if: 'max_share' must be a measure, one of > >= < <= == !="),
        ("inspect TOPIC --fail-if skew>1", 2, "--fail-if: unknown measure skew"),
    ],
)
def test_command_with_a_path_or_an_expression_that_is_wrong_names_it(
    broker: str, folder: Folder, command: str, code: int, problem: str
) -> None:
    folder.connect(bootstrap_servers=broker)
    create_topics(broker, {folder.topic: 1})
    write(broker, folder.topic, [b'{"name": "a", "value": 1}'] * 20)
    assert problem in folder.refused(command, code)
    assert folder.left({"bootstrap.servers": broker}) == {folder.topic}
