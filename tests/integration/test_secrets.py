"""Secrets appear in no output: every secret has the same value, and all outputs are searched for it."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from helpers.kafka import STAGES, Pipeline, Source, create_with
from helpers.stage_hosts import hosted
from helpers.waiting import until
from integration.secured import Secured
from skewless.cli import main
from skewless.config import acls, loader, topic_plan
from skewless.config.pipeline_settings import PipelineSettings

pytestmark = pytest.mark.broker

CANARY = "canary7f3a91c2"
RUN_S = 180.0
SECRET_OPTIONS = (
    "ssl.keystore.password",
    "ssl.key.pem",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
)
"""Options of librdkafka that contain secrets and have no separate setting."""
BASE: dict[str, Any] = {
    "name": "p",
    "source": {"topic": "raw"},
    "kafka": {
        "bootstrap_servers": "127.0.0.1:9",
        "connect_timeout_s": 0.5,
        "security_protocol": "SASL_SSL",
        "sasl": {"username": "ann", "password": CANARY},
        "tls": {"certificate": "c", "key": "k", "key_password": CANARY},
        "options": dict.fromkeys(SECRET_OPTIONS, CANARY),
    },
    "splitter": {"format": "text"},
}


def with_kafka(**changes: Any) -> dict[str, Any]:
    """Merge changes into the section `kafka`. A value of None removes a setting."""
    document = copy.deepcopy(BASE)
    kafka = document["kafka"] | changes
    document["kafka"] = {name: value for name, value in kafka.items() if value is not None}
    return document


def by_token(**changes: Any) -> dict[str, Any]:
    """Return the section `kafka.sasl` of a login with tokens."""
    settings = {"token_endpoint_url": "https://127.0.0.1:9/token", "client_id": "ann", "client_secret": CANARY}
    return {"mechanism": "OAUTHBEARER", "oauthbearer": settings | changes}


DOCUMENTS = {
    "nothing wrong but the files": with_kafka(),
    "a list for a password": with_kafka(sasl={"username": "ann", "password": [CANARY]}),
    "a mapping for a password": with_kafka(sasl={"username": "ann", "password": {"is": CANARY}}),
    "a password for the section": with_kafka(sasl=CANARY),
    "a misspelt name": with_kafka(sasl={"username": "ann", "pasword": CANARY}),
    "a password without a protocol": with_kafka(security_protocol="PLAINTEXT"),
    "a password in an address": with_kafka(bootstrap_servers=f"ann:{CANARY}@127.0.0.1:9"),
    "a secret without its mechanism": with_kafka(sasl={"oauthbearer": {"client_secret": CANARY}}),
    "a secret in an address": with_kafka(sasl=by_token(token_endpoint_url=f"https://ann:{CANARY}@127.0.0.1:9/token")),
    "a secret of a provider that does not answer": with_kafka(sasl=by_token(), tls=None),
    "a list for a secret": with_kafka(sasl=by_token(client_secret=[CANARY])),
    "an option that has a setting": with_kafka(options={"sasl.password": CANARY}),
    "an option that is a list": with_kafka(options={"ssl.keystore.password": [CANARY]}),
    "a key that is none": with_kafka(tls=None, options={"ssl.key.pem": CANARY}),
    "a key store that is none": with_kafka(
        tls=None, options={"ssl.keystore.location": __file__, "ssl.keystore.password": CANARY}
    ),
    "a key that needs no password": with_kafka(tls={"certificate": __file__, "key": __file__, "key_password": CANARY}),
}
TEXTS = {
    "an open quote": f'name: p\nkafka:\n  sasl:\n    password: "{CANARY}\n',
    "a colon too many": f"name: p\nkafka:\n  sasl:\n    password: {CANARY}: {CANARY}\n",
    "an alias": f"name: p\nkafka:\n  sasl:\n    password: *{CANARY}\n",
    "a tag": f"name: p\nkafka:\n  sasl:\n    password: !{CANARY}\n",
    "an anchor": f"name: p\nkafka:\n  sasl:\n    password: &{CANARY}\n",
    "a character that begins nothing": f"name: p\nkafka:\n  sasl:\n    password: @{CANARY}\n",
    "only the password": CANARY,
}
FILES = {**{name: json.dumps(document) for name, document in DOCUMENTS.items()}, **TEXTS}
COMMANDS = {
    "check": ("config", "check"),
    "dump": ("config", "dump"),
    "acls": ("topics", "acls"),
    "topics": ("topics", "check"),
    "run": ("run", "router"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_command_secret_in_its_file_is_never_printed(
    name: str, command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILES[name])
    caplog.set_level("DEBUG")
    result = CliRunner().invoke(main.main, [*COMMANDS[command], "-f", str(file)])
    out, err = capfd.readouterr()
    assert result.exit_code in {0, 2, 3}
    assert result.output + out + err + caplog.text  # the output is not empty
    assert CANARY not in result.output + out + err + caplog.text


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SKEWLESS__KAFKA__SASL__PASSWORD", CANARY),
        ("SKEWLESS__KAFKA__SASL__PASWORD", CANARY),
        ("SKEWLESS__KAFKA__SASL__PASSWORD", f"[{CANARY}]"),
        ("SKEWLESS__KAFKA__SASL__PASSWORD", f"*{CANARY}"),
        ("SKEWLESS__KAFKA__SASL", CANARY),
        ("SKEWLESS__KAFKA__SASL__OAUTHBEARER__CLIENT_SECRET", CANARY),
        ("SKEWLESS__KAFKA__SASL__OAUTHBEARER__CLIENT_SECRET", f"[{CANARY}]"),
        ("SKEWLESS__KAFKA__SASL__OAUTHBEARER", CANARY),
        ("SKEWLESS__KAFKA__TLS__KEY_PASSWORD", f"!{CANARY}"),
        ("SKEWLESS__KAFKA__OPTIONS__SASL_PASSWORD", CANARY),
        ("SKEWLESS__KAFKA__OPTIONS__SSL_KEYSTORE_PASSWORD", CANARY),
    ],
)
@pytest.mark.parametrize("command", ["check", "dump"])
def test_command_secret_in_the_environment_is_never_printed(
    variable: str, value: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"name": "p", "source": {"topic": "raw"}}))
    monkeypatch.setenv(variable, value)
    result = CliRunner().invoke(main.main, [*COMMANDS[command], "-f", str(file)])
    assert result.output
    assert CANARY not in result.output


def test_config_dump_secrets_that_are_set_are_masked(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(BASE))
    result = CliRunner().invoke(main.main, ["config", "dump", "-f", str(file)])
    assert result.output.count("********") == 2 + len(SECRET_OPTIONS)


def test_config_dump_secret_of_a_login_with_tokens_is_masked(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(with_kafka(sasl=by_token(), tls=None, options={})))
    result = CliRunner().invoke(main.main, ["config", "dump", "-f", str(file)])
    assert "client_id: ann" in result.output
    assert "client_secret: '********'" in result.output
    assert CANARY not in result.output


@pytest.fixture(scope="module")
def secured(secured_server: Secured) -> Secured:
    """Add an administrator whose password is the canary."""
    secured_server.add_users({"ann": CANARY})
    pipeline = PipelineSettings.model_validate({"name": "secrets", "source": {"topic": "secret"}})
    secured_server.allow(acls.acls_by_principal(pipeline, dict.fromkeys(acls.ROLES, "ann")))
    create_with(AdminClient(secured_server.admin_options()), {"secret": 1})
    return secured_server


def write_file(folder: Path, secured: Secured, password: str, **options: str) -> Path:
    file = folder / "pipeline.yaml"
    kafka = secured.kafka("ann", password) | {"options": options}
    small = {"worker_input": {"max_workers": 2}, "router": {"workers": 2}, "topics": {"aggregator_partitions": 1}}
    file.write_text(json.dumps({"name": "secrets", "source": {"topic": "secret"}, "kafka": kafka, **small}))
    return file


@pytest.mark.thorough
def test_pipeline_password_appears_neither_in_logs_nor_in_arguments(secured: Secured, tmp_path: Path) -> None:
    file = write_file(tmp_path, secured, CANARY)
    logs = tmp_path / "logs"
    command = [sys.executable, "-m", "skewless", "up", "--verbose", "--file", str(file), "--log-dir", str(logs)]
    console = tmp_path / "console"
    arguments: set[str] = set()
    names: set[str] = set()
    with console.open("wb") as output:
        up = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def note() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(up.pid)
            for each in [family, *family.children(recursive=True)]:
                arguments.add(" ".join(each.cmdline()))
                names.add(each.name())

    def works() -> bool:
        assert up.poll() is None, console.read_text()
        return console.read_text().count("INFO skewless.service") >= len(STAGES)

    try:
        until(works, each=note)
        note()
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(RUN_S)
    assert up.returncode == 0
    assert {f"{stage}-0" for stage in STAGES} <= names
    shown = "\n".join([*arguments, console.read_text(), *(log.read_text() for log in logs.iterdir())])
    assert CANARY not in shown


@pytest.mark.thorough
def test_stage_with_librdkafka_debug_logs_no_password(secured: Secured, tmp_path: Path) -> None:
    """With all debug logs of librdkafka, with the right and with a wrong password."""
    topic_plan.apply(loader.load(write_file(tmp_path, secured, CANARY), {}))
    for password, code in ((CANARY, 0), (f"{CANARY}-wrong", 3)):
        file = write_file(tmp_path, secured, password, debug="all")
        program = (
            "import logging, sys; logging.basicConfig(level=1); logging.getLogger('skewless.librdkafka').setLevel(1); "
            "from skewless.cli.main import main; main()"
        )
        command = [sys.executable, "-c", program, "run", "splitter", "--file", str(file), "--drain"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ended = subprocess.run(command, capture_output=True, env=environment, timeout=RUN_S, check=False)
        assert ended.returncode == code
        assert b"|SASL|" in ended.stderr
        assert CANARY.encode() not in ended.stdout + ended.stderr


def test_stage_with_metrics_listens_on_its_metrics_port_only(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    with pipeline.running() as supervisor:
        until(
            lambda: all(works(pipeline, stage) for stage in STAGES),
            each=lambda: supervisor.poll(time.monotonic()),
        )
        for replica in supervisor.processes.values():
            assert listening(replica.pid) == {replica.metrics_port}


@pytest.mark.thorough
def test_stage_without_metrics_listens_on_no_port(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    with hosted(pipeline.file, "run", "splitter", log=tmp_path / "log") as child:
        until(lambda: works(pipeline, "splitter"))
        assert listening(child.pid) == set()
        child.send_signal(signal.SIGTERM)
        assert child.wait(RUN_S) == 0


def works(pipeline: Pipeline, stage: str) -> bool:
    """Return whether a stage owns partitions; False while a broker that has just started does not know yet."""
    with contextlib.suppress(KafkaException):
        return pipeline.shares(stage) > 0
    return False


def listening(pid: int | None) -> set[int]:
    """Return the ports on which a process and its children accept connections or datagrams."""
    process = psutil.Process(pid)
    return {
        connection.laddr.port
        for each in [process, *process.children(recursive=True)]
        for connection in each.net_connections(kind="inet")
        if connection.laddr and (connection.status == psutil.CONN_LISTEN or not connection.raddr)
    }
