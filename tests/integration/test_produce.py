"""`skewless produce` against a real Kafka."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from helpers import kafka
from helpers.tiers import thorough_except
from skewless.cli.main import main
from skewless.lab.local.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("patient_commands")]
WAIT_S = 120.0


@pytest.fixture
def topic() -> str:
    return f"produce-{uuid.uuid4().hex[:8]}"


def command(*arguments: object, servers: str) -> list[str]:
    return [sys.executable, "-m", "skewless", "produce", *map(str, arguments), "--bootstrap-servers", servers]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def produce(*arguments: object, servers: str) -> Result:
    """Run the command in this process. An exception that it does not report gives exit code 1."""
    return CliRunner().invoke(main, ["produce", *map(str, arguments), "--bootstrap-servers", servers])


def summary(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    entries: dict[str, Any] = json.loads(result.stdout)
    return entries


def read(servers: str, topic: str, partitions: int) -> list[list[tuple[int, bytes]]]:
    """Read (timestamp, value) of every record of every partition, to the ends."""
    logs: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
    for record in kafka.read(servers, topic):
        logs[record.partition].append((record.timestamp, record.value or b""))
    return logs


def test_produce_command_several_partitions_sends_round_robin_with_event_timestamps(broker: str, topic: str) -> None:
    entries = summary(produce("zipf", "--topic", topic, "--partitions", 3, "--records", 650, "--json", servers=broker))
    logs = read(broker, topic, 3)
    assert [len(log) for log in logs] == [250, 200, 200]
    records = [record for log in logs for record in log]
    assert all(json.loads(value)["time"] == time for time, value in records)
    assert sorted(json.loads(value)["time"] - entries["first_ms"] for _, value in logs[1]) == [
        *range(100, 200),
        *range(400, 500),
    ]
    assert entries["records"] == 650
    assert entries["bytes"] == sum(len(value) for _, value in records)
    assert (entries["first_ms"], entries["last_ms"]) == (min(records)[0], max(records)[0])
    assert entries["interrupted"] is False


@pytest.mark.thorough
def test_produce_command_same_seed_twice_writes_the_same_logs(broker: str, topic: str) -> None:
    logs = []
    for name in (f"{topic}-a", f"{topic}-b"):
        summary(
            produce("country-skew", "--topic", name, "--partitions", 2, "--records", 5000, "--json", servers=broker)
        )
        logs.append(read(broker, name, 2))
    assert logs[0] == logs[1]


@pytest.mark.thorough
def test_produce_command_created_topic_keeps_records_of_past_years(broker: str, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"ticker": "A", "timestamp": 1388531408665}\n{"ticker": "A", "timestamp": 0}\n')
    entries = summary(produce("auto", "--topic", topic, "--partitions", 1, "--input", path, "--json", servers=broker))
    assert (entries["dataset"], entries["records"]) == ("ticker", 2)
    assert [time for time, _ in read(broker, topic, 1)[0]] == [1388531408665, 1]  # librdkafka cannot write 0
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker})  # the reference keeps the client alive, which its futures need
    config = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert config["retention.ms"].value == "-1"


def test_produce_command_missing_topic_ends_with_its_name_and_a_remedy(broker: str, topic: str) -> None:
    result = produce("zipf", "--topic", topic, servers=broker)
    assert result.exit_code == 3
    assert topic in result.stderr
    assert "--partitions" in result.stderr
    assert topic not in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=WAIT_S).topics


def test_produce_command_existing_topic_with_other_partition_count_is_refused(broker: str, topic: str) -> None:
    summary(produce("zipf", "--topic", topic, "--partitions", 2, "--records", 0, "--json", servers=broker))
    result = produce("zipf", "--topic", topic, "--partitions", 3, servers=broker)
    assert result.exit_code == 2
    assert "2 partitions" in result.stderr


def test_produce_command_record_refused_by_the_broker_is_reported_with_topic_and_cause(
    broker: str, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(os.urandom(600_000).hex()[:999_990].encode() + b"\n")
    pipeline = pipeline_file(tmp_path, topic, options={"message.max.bytes": 100_000})
    result = produce("lines", "-f", pipeline, "--partitions", 1, "--input", path, servers=broker)
    assert result.exit_code == 3
    assert f"cannot send to topic {topic}" in result.stderr
    assert "too large" in result.stderr


def test_produce_command_full_queue_loses_nothing_and_keeps_the_order(broker: str, topic: str, tmp_path: Path) -> None:
    pipeline = pipeline_file(tmp_path, topic, options={"queue.buffering.max.messages": 150})
    entries = summary(produce("zipf", "-f", pipeline, "--partitions", 1, "--records", 1000, "--json", servers=broker))
    (log,) = read(broker, topic, 1)
    assert [time - entries["first_ms"] for time, _ in log] == list(range(1000))


@pytest.mark.thorough
def test_produce_command_pipeline_file_gives_topic_and_broker(broker: str, topic: str, tmp_path: Path) -> None:
    pipeline = pipeline_file(tmp_path, topic)
    entries = summary(produce("zipf", "-f", pipeline, "--partitions", 1, "--records", 10, "--json", servers=broker))
    assert entries["topic"] == topic
    assert len(read(broker, topic, 1)[0]) == 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_produce_command_interrupted_delivers_queued_records_and_reports_their_number(
    broker: str, topic: str, number: signal.Signals
) -> None:
    arguments = ("zipf", "--topic", topic, "--partitions", 1, "--rate", 2000, "--json")
    with running(*arguments, servers=broker) as process:
        wait_for_records(broker, topic)
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + number
    entries = json.loads(out)
    assert entries["interrupted"] is True
    assert f"interrupted: sent {entries['records']:,} records" in err
    assert entries["records"] == len(read(broker, topic, 1)[0])


RESUMED = ("COUNTRY_SKEW_R50", "--seed", 3, "--event-rate", 1000, "--records", 30_000)


@pytest.fixture(scope="module")
def whole(broker: str) -> list[list[tuple[int, bytes]]]:
    """Return the logs of a run without interruption."""
    topic = f"produce-{uuid.uuid4().hex[:8]}"
    summary(produce(*RESUMED, "--topic", topic, "--partitions", 3, "--json", servers=broker))
    return read(broker, topic, 3)


def write(servers: str, topic: str, logs: list[list[tuple[int, bytes]]]) -> None:
    """Write logs into a new topic, as an interrupted run leaves them."""
    summary(produce("zipf", "--topic", topic, "--partitions", len(logs), "--records", 0, "--json", servers=servers))
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for partition, log in enumerate(logs):
        for time, value in log:
            producer.produce(topic, value, partition=partition, timestamp=time)
    assert producer.flush(WAIT_S) == 0


def resume(servers: str, topic: str) -> Result:
    return produce(*RESUMED, "--topic", topic, "--resume", "--json", servers=servers)


@pytest.mark.parametrize("number", thorough_except([signal.SIGINT], [signal.SIGINT, signal.SIGKILL]))
def test_produce_command_resumed_after_an_early_end_completes_the_topic(
    broker: str, topic: str, whole: list[list[tuple[int, bytes]]], number: signal.Signals
) -> None:
    arguments = (*RESUMED, "--topic", topic, "--partitions", 3, "--rate", 200)
    with running(*arguments, servers=broker) as process:
        wait_for_records(broker, topic)
        process.send_signal(number)
        process.communicate(timeout=WAIT_S)
    there = sum(map(len, read(broker, topic, 3)))
    assert 0 < there < 30_000
    entries = summary(resume(broker, topic))
    assert (entries["already"], entries["records"]) == (there, 30_000 - there)
    assert read(broker, topic, 3) == whole
    again = summary(resume(broker, topic))
    assert (again["already"], again["records"]) == (30_000, 0)


@pytest.mark.thorough
def test_produce_command_resumed_with_unequal_partitions_completes_each(
    broker: str, topic: str, whole: list[list[tuple[int, bytes]]]
) -> None:
    write(broker, topic, [whole[0][:9_999], [], whole[2][:350]])
    assert summary(resume(broker, topic))["records"] == 30_000 - 9_999 - 350
    assert read(broker, topic, 3) == whole


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda logs: [logs[0][:5], [(1, b"other")], []], "partition 1, offset 0"),
        (lambda logs: [logs[0][:4] + logs[0][5:6], [], []], "partition 0, offset 4"),
        (lambda logs: [[*logs[0], logs[0][-1]], [], []], "partition 0, offset 10000"),
    ],
    ids=["another's", "a gap", "too many"],
)
def test_produce_command_resumed_on_foreign_records_is_refused_and_changes_nothing(
    broker: str,
    topic: str,
    whole: list[list[tuple[int, bytes]]],
    change: Callable[[list[list[tuple[int, bytes]]]], list[list[tuple[int, bytes]]]],
    reason: str,
) -> None:
    left = change(whole)
    write(broker, topic, left)
    result = resume(broker, topic)
    assert result.exit_code == 2
    assert f"topic {topic} has records of another run ({reason})" in result.stderr
    assert read(broker, topic, 3) == left


def test_produce_command_generated_records_are_reported_as_synthetic(broker: str, topic: str) -> None:
    result = produce("TWITTER_ELECTION", "--topic", topic, "--partitions", 1, "--records", 5, "--json", servers=broker)
    entries = summary(result)
    assert (entries["dataset"], entries["synthetic"]) == ("election", True)
    assert "election: no --input, so the records are generated with seed 1" in result.stderr


@pytest.mark.thorough
def test_produce_command_file_is_sent_with_times_in_milliseconds(broker: str, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("1442018952\tA\n")
    arguments = ("pages", "--topic", topic, "--partitions", 1, "--input", path, "--json")
    assert summary(produce(*arguments, servers=broker))["synthetic"] is False
    assert read(broker, topic, 1) == [[(1442018952000, b"1442018952000\tA")]]


@pytest.mark.thorough
def test_produce_command_broker_lost_during_the_run_ends_with_its_address(topic: str, tmp_path: Path) -> None:
    pipeline = pipeline_file(tmp_path, topic, options={"message.timeout.ms": 15_000})
    with Broker() as own:
        address = own.bootstrap
        arguments = ("zipf", "-f", pipeline, "--partitions", 1, "--rate", 2000)
        with running(*arguments, servers=address) as process:
            wait_for_records(address, topic)
            own.kill()
            _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 3
    assert address in err
    assert "Traceback" not in err


def test_produce_command_unreachable_broker_ends_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS__KAFKA__CONNECT_TIMEOUT_S", "0.5")
    result = produce("zipf", "--topic", "any", servers="127.0.0.1:1")
    assert result.exit_code == 3
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope", "--topic", "t"), "unknown dataset nope (known: "),
        (("zipf",), "--topic"),
        (("zipf", "--topic", "t", "--keys", "0"), "--keys"),
        (("zipf", "--topic", "t", "--rate", "-1"), "--rate"),
        (("lines", "--topic", "t"), "--input: missing"),
        (("zipf", "--topic", "t", "--input", "x"), "--input: this dataset reads no files"),
        (("COUNTRY_SKEW_R30", "--topic", "t", "--skew", "40"), "--skew: the dataset's name already sets it to 30"),
        (("lines", "--topic", "t", "--input", "/none"), "/none: no such file"),
    ],
)
def test_produce_command_invalid_arguments_end_before_a_connection(arguments: tuple[str, ...], message: str) -> None:
    result = produce(*arguments, servers="127.0.0.1:1")
    assert result.exit_code == 2
    assert message in result.stderr


def pipeline_file(folder: Path, topic: str, **kafka: object) -> Path:
    path = folder / "pipeline.yaml"
    settings = {"name": "test", "source": {"topic": topic}, "kafka": {"bootstrap_servers": "127.0.0.1:1", **kafka}}
    path.write_text(json.dumps(settings))
    return path


@contextlib.contextmanager
def running(*arguments: object, servers: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command(*arguments, servers=servers),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_records(servers: str, topic: str) -> None:
    """Wait until the topic's first record exists."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "log_level": 0,
            "topic.metadata.refresh.interval.ms": 200,
            "auto.offset.reset": "earliest",
        }
    )
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = monotonic() + WAIT_S
        while monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                return
    pytest.fail("no record arrived")
