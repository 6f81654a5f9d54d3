"""The commands from `inspect` to `reset`, one after the other: with a secured broker, and with 200 partitions."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from helpers.kafka import STAGES, START_MS, create_with
from helpers.stage_hosts import share_host
from integration.secured import Secured
from skewless.cli.main import main
from skewless.config import acls
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.kafka.settings import KafkaSettings

pytestmark = [pytest.mark.broker, pytest.mark.thorough]
RECORDS = 2_000
SHOPS = 10
LIMIT_S = 180.0
USER, PASSWORD = "analyst", "canary-5b1d9e"
FINISHED = [f"{stage}-0: finished, exit code 0" for stage in STAGES]


class Session:
    """Runs commands in a folder, as a user does. No output and no file may contain the password."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, command: str, *expected: str, code: int = 0) -> str:
        """Run a command that ends with this code, and whose output contains the expected texts. Returns its output."""
        result = CliRunner().invoke(main, shlex.split(command))
        self._check(f"{result.output}\nexit code {result.exit_code}", command, (*expected, f"\nexit code {code}"))
        return result.stdout

    def top(self, *expected: str) -> None:
        """Run `skewless top` without a terminal, until its first line."""
        program = [sys.executable, "-m", "skewless", "top"]
        with subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130
        self._check(line, "top", expected)

    def _check(self, output: str, command: str, expected: tuple[str, ...]) -> None:
        assert [text for text in expected if text not in output] == [], f"{command}: {output}"
        written = [file.read_text(errors="replace") for file in self._folder.rglob("*") if file.is_file()]
        assert [text for text in (output, *written) if PASSWORD in text or "Traceback" in text] == [], command


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    share_host(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return Session(tmp_path)


@pytest.fixture(scope="module")
def secured(secured_server: Secured) -> Secured:
    secured_server.add_users({USER: PASSWORD})
    return secured_server


def fill(options: dict[str, str | int], topic: str, partitions: int) -> None:
    """Create a topic with sales, of which half are of shop s0. The last two records are invalid."""
    create_with(AdminClient(options), {topic: partitions})
    producer = Producer(options | {"enable.idempotence": True})
    for number in range(RECORDS):
        shop = 0 if number // partitions % 2 else number % SHOPS
        value = json.dumps({"shop": f"s{shop}", "time": START_MS + 50 * number}) if number < RECORDS - 2 else "{"
        producer.produce(topic, value.encode(), partition=number % partitions)
    assert producer.flush(LIMIT_S) == 0


def test_commands_with_a_secured_broker_work_and_never_show_the_password(
    secured: Secured, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(secured.admin_options(), "sales", 4)
    settings = PipelineSettings.model_validate({"name": "sales", "source": {"topic": "sales"}})
    secured.allow(acls.acls_by_principal(settings, dict.fromkeys(acls.ROLES, USER)))
    kafka = {
        "BOOTSTRAP_SERVERS": secured.bootstrap,
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL__MECHANISM": "SCRAM-SHA-512",
        "SASL__USERNAME": USER,
        "SASL__PASSWORD": PASSWORD,
        "TLS__CA": str(secured.ca),
    }
    for name, value in kafka.items():
        monkeypatch.setenv(f"SKEWLESS__KAFKA__{name}", value)

    session.run(
        "inspect sales", f"sales: {RECORDS:,} records of {RECORDS:,} offsets, 4 partitions", "Hottest keys of shop"
    )
    session.run("init sales --yes", "pipeline.yaml: pipeline sales, key shop")
    session.run("config check", "pipeline.yaml: pipeline sales is valid")
    session.run("config dump", f"username: {USER}", "password: '********'")
    session.run("plan --workers 4 --grouping key,even --out plan", "Recommended: ", "Report: plan/report.html")
    session.run("topics apply", "created sales.tuples")
    session.run("topics check", "topics of pipeline sales are as configured")
    session.run("status", "error: pipeline sales: 5 problems", code=1)
    session.run("up --drain --log-dir logs --set router.workers=4", *FINISHED)
    session.run("status", "windows  all are closed", "0 late tuples, 2 dead letters", "  key s0: ")
    session.run("status --json", '"open_windows": 0')
    session.top("sales ", "max/avg")
    session.run("results --top 1", "  s0  count ")
    session.run("dead-letters list", "           2  sales  malformed JSON")
    session.run(f"dead-letters show sales/3/{RECORDS // 4 - 1}", "reason       malformed JSON", "value        {")
    session.run("dead-letters replay --dry-run", "2 records would be replayed to sales")
    hot = hot_keys(KafkaSettings.model_validate(secured.kafka(USER, PASSWORD)), "sales.hot-keys")
    assert [change["key"] for change in hot] == ["s0"]
    # The rights of the stages do not suffice.
    session.run("reset --delete --yes", "not allowed while deleting group sales-", "grant Delete on the group", code=3)


def hot_keys(kafka: KafkaSettings, topic: str) -> list[dict[str, object]]:
    offsets = OffsetReader(kafka)
    begin, end = offsets.begin(topic), offsets.end(topic)
    batches = read_ranges(kafka, topic, {partition: (first, end[partition]) for partition, first in begin.items()})
    return [json.loads(message.value() or b"") for _, batch in batches for message in batch]


def test_commands_with_200_partitions_count_every_record(
    broker: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill({"bootstrap.servers": broker}, "wide", 200)
    monkeypatch.setenv("SKEWLESS__KAFKA__BOOTSTRAP_SERVERS", broker)
    monkeypatch.setenv("SKEWLESS__KAFKA__CONNECT_TIMEOUT_S", "120")  # until a busy broker has created all partitions
    session.run("inspect wide", "200 partitions", "partitions  10 to 10 records, max/avg 1.00", "Hottest keys of shop")
    session.run("init wide --yes", "pipeline.yaml: pipeline wide, key shop")
    session.run("up --drain --log-dir logs --set router.workers=4", *FINISHED)
    session.run("status", "windows  all are closed", "0 late tuples, 2 dead letters")
    session.run("dead-letters list", "           2  wide  malformed JSON")
    results = [json.loads(line) for line in session.run("results --window all --json").splitlines()]
    assert sum(result["count"] for result in results) == RECORDS - 2
    session.run("reset --to-start --dry-run", "  topic wide.tuples, 200 partitions")
    session.run("reset --delete --yes", "deleted topic wide.tuples")
    session.run("reset --delete --yes", "pipeline wide has no topics, groups or rows: nothing to remove")
