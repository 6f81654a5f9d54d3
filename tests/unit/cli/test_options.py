"""Options of every command that needs a pipeline: the default of -f, and --set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from skewless.cli.main import main
from skewless.cli.options import no_progress, pipeline_file, registry_option
from skewless.config import loader
from skewless.errors import ConfigurationError
from skewless.lab import progress

PIPELINE = "name: clicks\nsource: {topic: clicks}\nrouter: {workers: 4}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("SKEWLESS_", "KAFKA_")):
            monkeypatch.delenv(name)
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def dumped(*args: str) -> dict[str, Any]:
    result = run("config", "dump", *args)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = yaml.safe_load(result.stdout)
    return document


def test_file_option_absent_reads_the_variable_then_the_default_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "other.yaml").write_text(PIPELINE.replace("clicks", "orders"))
    assert dumped()["name"] == "clicks"
    monkeypatch.setenv("SKEWLESS_FILE", "other.yaml")
    assert dumped()["name"] == "orders"
    assert dumped("-f", "pipeline.yaml")["name"] == "clicks"


def test_file_option_absent_without_any_file_ends_with_the_ways_to_name_one() -> None:
    result = run("config", "check")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: no pipeline file: name it with -f FILE or $SKEWLESS_FILE, or write pipeline.yaml, as `skewless init "
        "TOPIC` does\n"
    )


def test_file_option_absent_with_only_the_broker_in_the_environment_ends_with_the_ways_to_name_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKEWLESS__KAFKA__BOOTSTRAP_SERVERS", "kafka:9092")
    assert run("config", "check").stderr.startswith("error: no pipeline file: name it with -f FILE")


@pytest.mark.parametrize("command", [("produce", "zipf", "--topic", "t"), ("plan", "--topic", "t"), ("inspect", "t")])
def test_command_without_a_file_reads_the_broker_from_the_settings_in_the_environment(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS__KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("SKEWLESS__KAFKA__CONNECT_TIMEOUT_S", "0.5")
    result = run(*command)
    assert (result.exit_code, "127.0.0.1:1" in result.stderr) == (3, True), result.output


@pytest.mark.parametrize(
    "command",
    [
        ("produce", "zipf", "--topic", "t"),
        ("plan", "--topic", "t"),
        ("inspect", "t"),
        ("init", "t"),
        ("topics", "check", "-f", "pipeline.yaml"),
        ("topics", "apply", "-f", "pipeline.yaml"),
        ("run", "splitter", "-f", "pipeline.yaml"),
        ("status", "-f", "pipeline.yaml"),
        ("inspect", "t", "-f", "pipeline.yaml"),
        ("plan", "-f", "pipeline.yaml"),
    ],
)
def test_command_without_an_address_uses_the_variable_of_kafka(
    command: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "-f" in command:
        (folder / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("SKEWLESS__KAFKA__CONNECT_TIMEOUT_S", "0.5")
    result = run(*command)
    assert (result.exit_code, "127.0.0.1:1" in result.stderr) == (3, True), result.output


@pytest.mark.parametrize("command", [("produce", "zipf"), ("plan",), ("inspect", "t")])
def test_bootstrap_servers_option_takes_precedence_over_file_and_variable(
    command: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE + "kafka: {bootstrap_servers: '127.0.0.1:2'}\n")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:3")
    monkeypatch.setenv("SKEWLESS__KAFKA__CONNECT_TIMEOUT_S", "0.5")
    result = run(*command, "-f", "pipeline.yaml", "-b", "127.0.0.1:1")
    assert (result.exit_code, "127.0.0.1:1" in result.stderr) == (3, True), result.output


def test_produce_command_without_a_topic_into_the_source_that_the_pipeline_writes_is_refused(folder: Path) -> None:
    sides = "left: {topic: l, id: {field: id}}, right: {topic: r, id: {field: id}}"
    (folder / "pipeline.yaml").write_text(
        f"{{name: p, source: {{topic: p.joined}}, join: {{{sides}, apart_s: 1}}, splitter: {{key: {{field: id}}}}}}"
    )
    result = run("produce", "zipf", "-f", "pipeline.yaml")
    expected = "error: --topic: missing; the pipeline writes its source topic p.joined itself: name another topic, or"
    assert (result.exit_code, result.stderr.startswith(expected)) == (2, True), result.output


def test_bootstrap_servers_option_without_an_address_is_refused() -> None:
    assert run("inspect", "t", "-b", "").stderr.startswith("error: --bootstrap-servers: ")


def test_file_option_absent_with_settings_in_the_environment_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS__NAME", "clicks")
    monkeypatch.setenv("SKEWLESS__SOURCE__TOPIC", "clicks")
    assert dumped()["name"] == "clicks"


def test_set_option_overrides_file_and_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.setenv("SKEWLESS__ROUTER__WORKERS", "5")
    assert dumped()["router"]["workers"] == 5
    settings = (
        "router.workers=6",
        "kafka.options.socket.timeout.ms=5000",
        "topics.options.worker-input.retention.ms=9",
    )
    document = dumped(*(part for setting in settings for part in ("--set", setting)))
    assert document["router"]["workers"] == 6
    assert document["kafka"]["options"] == {"socket.timeout.ms": 5000}
    assert document["topics"]["options"] == {"worker-input": {"retention.ms": "9"}}
    assert os.environ["SKEWLESS__ROUTER__WORKERS"] == "5"
    assert not {"SKEWLESS__KAFKA__OPTIONS__SOCKET_TIMEOUT_MS", loader.SET_BY_OPTIONS} & os.environ.keys()


def test_set_option_is_named_in_the_errors_of_a_process_that_the_command_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS__OBSERVER__TICK_S", "5")

    @click.command()
    @pipeline_file
    @registry_option
    def start(file: Path | None) -> None:
        inherited = dict(os.environ)
        for setting in ("router.workers", "observer.tick_s", "registry.url"):
            click.echo(loader.placed(f"{setting}: was 3", file, inherited))
        with pytest.raises(ConfigurationError, match=r"^--set router\.workers: should be a valid integer"):
            loader.load(file, inherited)

    (folder / "pipeline.yaml").write_text(PIPELINE)
    options = ["--registry", "http://r", "--set", "router.workers=many"]
    assert CliRunner().invoke(start, options, catch_exceptions=False).stdout.splitlines() == [
        "--set router.workers: router.workers: was 3",
        "SKEWLESS__OBSERVER__TICK_S: observer.tick_s: was 3",
        "--registry: registry.url: was 3",
    ]


def test_set_option_with_an_invalid_value_is_named_in_the_error(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    result = run("config", "check", "--set", "router.workers=many")
    assert (result.exit_code, result.stderr.startswith("error: --set router.workers: should be a valid integer")) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("a.b=c", "--set a.b: a: unknown setting; known settings: name, "),
        ("router.worker=3", "--set router.worker: unknown setting; did you mean workers?"),
        ("router.workers.x=3", "--set router.workers.x: unknown setting, because a part of its path is a value"),
        ("observer.top_keys.x=3", "--set observer.top_keys.x: observer.top_keys: should be a valid integer"),
        ("splitter.value.foo.bar=1", "--set splitter.value.foo.bar: splitter.value.foo: unknown setting"),
        ("splitter={value: {foo: 1}}", "--set splitter: splitter.value.foo: unknown setting"),
        ("source.topic.x=1", "--set source.topic.x: unknown setting, because a part of its path is a value"),
        ("kafka.options.foo.bar=1", "--set kafka.options.foo.bar: kafka.options: librdkafka refuses them"),
    ],
)
def test_set_option_of_an_unknown_setting_is_named_in_the_error(folder: Path, assignment: str, message: str) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE + "kafka: {options: {socket.timeout.ms: 5000}}\n")
    result = run("config", "check", "--set", assignment)
    assert (result.exit_code, f"error: {message}" in result.stderr) == (2, True), result.stderr


def test_set_option_with_an_invalid_file_leaves_the_problems_of_the_file_to_the_file(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("workers: 4", "workrs: 4"))
    result = run("config", "check", "--set", "router.grouping=key")
    assert result.stderr == "error: pipeline.yaml: router.workrs: unknown setting; did you mean workers?\n"


@pytest.mark.parametrize("setting", ["sink.password", "kafka.sasl.password", "kafka.options.ssl.key.pem"])
def test_set_option_of_a_secret_is_refused_with_its_variable(folder: Path, setting: str) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    result = run("config", "check", "--set", f"{setting}=SESAME")
    assert (result.exit_code, "SESAME" in result.output) == (2, False)
    assert f"{setting} is a secret" in result.stderr
    assert f"set {loader.variable_of(setting)} instead" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("assignment", "secret"),
    [
        ('sink={"url": "postgresql://h/d", "username": "u", "password": "SESAME"}', "sink.password"),
        ("sink={password: SESAME}", "sink.password"),
        ('kafka.options={"client.id": "c", "ssl.key.pem": "SESAME"}', "kafka.options.ssl.key.pem"),
        (
            "mirror={kafka: {sasl: {oauthbearer: {client_secret: SESAME}}}}",
            "mirror.kafka.sasl.oauthbearer.client_secret",
        ),
        ("mirror={kafka: &k {options: *k, sasl: {password: SESAME}}}", "mirror.kafka.sasl.password"),
    ],
)
def test_set_option_of_a_group_with_a_secret_is_refused_with_the_variable_of_the_secret(
    folder: Path, assignment: str, secret: str
) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    result = run("config", "check", "--set", assignment)
    assert (result.exit_code, "SESAME" in result.output) == (2, False)
    assert f"{secret} is a secret" in result.stderr
    assert f"set {loader.variable_of(secret)} instead" in " ".join(result.stderr.split())


def test_set_option_of_a_group_without_a_secret_sets_it(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    assert dumped("--set", "kafka={options: {client.rack: a}}")["kafka"]["options"] == {"client.rack": "a"}


def test_set_option_of_a_group_that_contains_itself_ends_with_2(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    assert run("config", "check", "--set", "sink=&a {b: *a}").exit_code == 2


@pytest.mark.parametrize("assignment", ["router.workers", "=8", "router..workers=8"])
def test_set_option_that_is_no_assignment_ends_with_2(folder: Path, assignment: str) -> None:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    result = run("config", "check", "--set", assignment)
    assert (result.exit_code, f"'{assignment}' is not NAME=VALUE" in result.stderr) == (2, True)


def test_no_progress_option_hides_progress_until_the_command_ends() -> None:
    @click.command()
    @no_progress
    def work() -> None:
        with progress.report_progress("working", 10, 0.0) as report:
            report(2 * progress.LINE_INTERVAL_S, 5)

    assert CliRunner().invoke(work, ["--no-progress"]).stderr == ""
    assert CliRunner().invoke(work, ["-q"]).stderr == ""
    assert "5 of 10 records" in CliRunner().invoke(work, []).stderr


@pytest.mark.parametrize("command", ["produce", "inspect", "init", "simulate", "plan", "batch", "audit", "evaluate"])
def test_no_progress_option_exists_where_work_is_long(command: str) -> None:
    assert "-q, --no-progress" in run(command, "--help").output
