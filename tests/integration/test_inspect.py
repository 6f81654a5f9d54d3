"""`skewless inspect` against a real Kafka."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from helpers.envelopes import RECORDS as ENVELOPE_RECORDS
from helpers.kafka import create_topics
from skewless.cli.main import main
from skewless.lab.inspection.read_topic import OLDEST_RECORDS
from skewless.parsing.envelopes import ENVELOPES

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("patient_commands")]
RECORDS = 3_000


@pytest.fixture
def topic(broker: str) -> str:
    name = f"inspect-{uuid.uuid4().hex[:8]}"
    create_topics(broker, {name: 3})
    return name


def write(broker: str, topic: str) -> None:
    """Write half of the records with the key `hot`, and 30 tombstones."""
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for i in range(RECORDS):
        value = None if i % 100 == 99 else json.dumps({"user": f"u{i % 9}", "at": 1_700_000_000 + i}).encode()
        producer.produce(topic, value, "hot" if i % 2 else f"k{i % 50}", partition=i % 3)
    assert producer.flush(60) == 0


def inspect(broker: str, topic: str, *options: object) -> Result:
    return CliRunner().invoke(main, ["inspect", topic, "-b", broker, *map(str, options)])


def groups(broker: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker})
    listed = admin.list_consumer_groups().result()
    return {group.group_id for group in listed.valid}


def test_inspect_topic_is_measured_without_a_consumer_group(broker: str, topic: str, tmp_path: Path) -> None:
    write(broker, topic)
    before = groups(broker)
    page = tmp_path / "page.html"
    result = inspect(broker, topic, "--json", "--html", page)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert (found["records"], found["null_value_share"]) == (RECORDS, 0.01)
    assert [key["name"] for key in found["keys"]] == ["record key", "user"]
    assert found["keys"][0]["top"][0] == {"key": "hot", "count": RECORDS // 2, "share": 0.5}
    assert found["measures"]["max_share"] == 0.5
    assert "hot" in page.read_text(encoding="utf-8")
    assert groups(broker) <= before  # the broker may have deleted one whose offsets have expired


def test_inspect_records_option_reads_the_newest_of_each_partition(broker: str, topic: str) -> None:
    write(broker, topic)
    found = json.loads(inspect(broker, topic, "--json", "--records", 300).stdout)
    assert found["partitions"]["records"] == {"0": 100, "1": 100, "2": 100}
    assert found["offsets"] == {"0": [900, 1000], "1": [900, 1000], "2": [900, 1000]}


def test_inspect_partition_without_records_counts_for_the_balance_of_the_partitions(broker: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(30):
        producer.produce(topic, b'{"user": "u"}', partition=number % 2)
    assert producer.flush(60) == 0
    found = json.loads(inspect(broker, topic, "--json").stdout)
    assert found["partitions"] == {"max_over_avg": 1.5, "records": {"0": 15, "1": 15, "2": 0}}
    assert "partitions  0 to 15 records, max/avg 1.50" in inspect(broker, topic).stdout


def test_inspect_condition_that_is_met_exits_with_1(broker: str, topic: str) -> None:
    write(broker, topic)
    result = inspect(broker, topic, "--fail-if", "max_share > 0.05", "--fail-if", "max_over_avg > 1.5")
    assert result.exit_code == 1
    assert "error: max_share > 0.05: it is 0.5\n" in result.stderr
    assert "Hottest keys of record key" in result.stdout
    assert inspect(broker, topic, "--fail-if", "max_share > 0.5").exit_code == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 1, "is empty: it has 3 partitions and no records"),
        (("--fail-if", "skew > 1"), 2, "--fail-if: unknown measure skew"),
        (("--since", "1y"), 2, "is not a duration above 0 such as"),
        (("--html", "/nowhere/page.html"), 2, "the folder does not exist"),
    ],
)
def test_inspect_nothing_to_measure_or_wrong_use_is_one_line(
    broker: str, topic: str, options: tuple[str, ...], code: int, message: str
) -> None:
    result = inspect(broker, topic, *options)
    assert (result.exit_code, message in result.stderr) == (code, True), result.output
    assert "Traceback" not in result.output


def test_inspect_unknown_topic_or_key_is_one_line(broker: str, topic: str) -> None:
    write(broker, topic)
    assert "does not exist" in inspect(broker, f"{topic}-no").stderr
    result = inspect(broker, topic, "--key", "nothing.here")
    assert (result.exit_code, "--key: no record has a field nothing.here" in result.stderr) == (2, True)


@pytest.mark.parametrize("per_ms", [1_000, 1_000_000])
def test_init_kafka_timestamps_that_are_not_in_ms_are_one_line(broker: str, tmp_path: Path, per_ms: int) -> None:
    """A mistake of producers. `inspect` measures the records nevertheless."""
    topic = f"inspect-{uuid.uuid4().hex[:8]}"
    create_topics(broker, {topic: 1}, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(30):
        value = json.dumps({"user": f"u{number % 3}"})
        producer.produce(topic, value, timestamp=(1_700_000_000_000 + number) * per_ms)
    assert producer.flush(60) == 0
    result = CliRunner().invoke(main, ["init", topic, "-b", broker, "--yes", "-o", str(tmp_path / "p.yaml")])
    expected = f"error: topic {topic}: the Kafka timestamps of its records are after the year 9999, so their producer"
    assert (result.exit_code, result.stderr.startswith(expected)) == (1, True), result.output
    shown = inspect(broker, topic)
    assert (shown.exit_code, "Hottest keys of user" in shown.stdout) == (0, True), shown.output


@pytest.mark.parametrize(("envelope", "form"), ENVELOPE_RECORDS)
def test_init_records_in_an_envelope_have_its_time(
    broker: str, topic: str, envelope: str, form: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(30):
        value, headers = ENVELOPE_RECORDS[envelope, form](json.dumps({"user": f"u{number % 3}"}))
        producer.produce(topic, value, headers=list(headers))
    assert producer.flush(60) == 0
    result = CliRunner().invoke(main, ["init", topic, "-b", broker, "--yes", "-o", str(tmp_path / "p.yaml")])
    expected = f"key user, event time {ENVELOPES[envelope].event_time}\n"
    assert (result.exit_code, expected in result.stdout) == (0, True), result.output


def test_inspect_and_init_of_a_renamed_field_choose_the_new_one(broker: str, topic: str, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(RECORDS):
        name = "userId" if number < RECORDS // 10 else "user"
        producer.produce(topic, json.dumps({name: f"u{number % 9}", "at": 1_700_000_000 + number}), partition=0)
    assert producer.flush(60) == 0
    keys = json.loads(inspect(broker, topic, "--json").stdout)["keys"]
    assert [(key["name"], key["invalid_share"]) for key in keys] == [("user", 0.1)]
    file = tmp_path / "p.yaml"
    options = ["-b", broker, "--yes", "--records", "1000", "-o", str(file)]
    result = CliRunner().invoke(main, ["init", topic, *options])
    assert "key user, event time at\nread: the newest 1,000 records of 3,000 offsets; see --records\n" in result.stdout
    warning = "WARNING: 300 of the first 500 records of the topic are not counted, which are older than these:\n"
    assert result.stderr == f"{warning}  key field user is missing (300)\n"
    assert f"# {warning}" in file.read_text()


def test_init_old_records_after_one_without_a_time_keep_their_results(broker: str, topic: str, tmp_path: Path) -> None:
    """The newest records are of today, those at the beginning are old, and the first one has no time."""
    now_s, file = int(time.time()), tmp_path / "p.yaml"
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(RECORDS):
        at = None if number == 0 else now_s - RECORDS + number - (86_400 * 60 if number < 100 else 0)
        producer.produce(topic, json.dumps({"user": f"u{number % 9}", "at": at}), partition=0)
    assert producer.flush(60) == 0
    options = ["-b", broker, "--yes", "--records", "1000"]
    result = CliRunner().invoke(main, ["init", topic, *options, "-o", str(file)])
    assert (result.exit_code, "results_retention_s: 31536000\n" in file.read_text()) == (0, True), result.output

    for _ in range(OLDEST_RECORDS):
        producer.produce(topic, json.dumps({"user": "u1"}), partition=1)
    for _ in range(RECORDS):
        producer.produce(topic, json.dumps({"user": "u1", "at": now_s}), partition=1)
    assert producer.flush(60) == 0
    file = tmp_path / "other.yaml"
    result = CliRunner().invoke(main, ["init", topic, *options, "-o", str(file)])
    assert (result.exit_code, "results_retention_s: null\n" in file.read_text()) == (0, True), result.output


def test_init_file_that_is_created_while_the_topic_is_read_is_not_replaced(
    broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(broker, topic)
    file = tmp_path / "p.yaml"
    monkeypatch.setattr("skewless.cli.commands.init._require_valid", lambda _text: file.write_text("mine"))
    result = CliRunner().invoke(main, ["init", topic, "-b", broker, "--yes", "-o", str(file)])
    error = f"error: -o: {file}: exists; name another file, or remove it\n"
    assert (result.exit_code, result.stderr.endswith(error), file.read_text()) == (2, True, "mine"), result.output


def test_init_key_of_records_in_another_partition_than_the_first_is_found(
    broker: str, topic: str, tmp_path: Path
) -> None:
    """Each partition has records of one kind, as with a record key, and the newest ones have another field."""
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(2 * RECORDS):
        partition = int(number % RECORDS >= RECORDS // 2)
        name = "customer" if number >= RECORDS else ("user", "account")[partition]
        value = json.dumps({name: f"u{number % 9}", "at": 1_700_000_000 + number})
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0
    for key in ("user", "account", "customer"):
        options = ["-b", broker, "--yes", "--key", key, "-o", str(tmp_path / f"{key}.yaml")]
        result = CliRunner().invoke(main, ["init", topic, *options])
        assert (result.exit_code, f"key {key}, event time at" in result.stdout) == (0, True), result.output
        assert "% of these records are not counted" in result.stderr
