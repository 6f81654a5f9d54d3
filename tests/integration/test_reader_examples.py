"""The example readers find the results of a plain count, and no record of an aborted transaction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from helpers.docs_blocks import ROOT, blocks
from helpers.java_compiler import compile_java
from helpers.kafka import Pipeline, Source, Truth, create_topics, read, truth, zipf_records
from helpers.tools import kcat
from helpers.waiting import WAIT_S
from skewless.lab.local import jars
from skewless.lab.local.broker import Broker
from skewless.lab.local.java import find

READERS = ROOT / "deploy" / "examples" / "readers"
PAGES = [ROOT / "docs" / "how-to" / name for name in ("own-consumers.md", "read-results.md")]
INVALID = b"no JSON"


@dataclass(frozen=True)
class Ran:
    """A pipeline that has run to its end, and the results of a plain count of its source."""

    broker: str
    pipeline: Pipeline
    truth: Truth


@pytest.fixture(scope="module")
def ran(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run a pipeline that writes a record per tuple, then write an aborted transaction to the topics that are read."""
    source = Source(broker, 2)
    source.send(zipf_records(2_000, 2, seed=11, keys=100))
    expected = truth(read(broker, source.topic), lateness_ms=5_000)
    source.send([(0, INVALID)])
    pipeline = Pipeline(
        broker,
        tmp_path_factory.mktemp("readers"),
        source,
        worker_input={"max_workers": 4, "encoding": "record"},
        router={"workers": 3},
        event_time={"idle_timeout_s": None, "allowed_lateness_s": 5},
    )
    pipeline.drain(limit_s=200)
    write_aborted(broker, pipeline)
    return Ran(broker, pipeline, expected)


@pytest.fixture(scope="module")
def ran_with_values(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run a pipeline with named values that writes a record per tuple."""
    source = Source(broker, 1)
    source.send(zipf_records(200, 1, seed=12, keys=20))
    expected = truth(read(broker, source.topic), lateness_ms=5_000)
    pipeline = Pipeline(
        broker,
        tmp_path_factory.mktemp("values"),
        source,
        splitter={"values": {"amount": {"field": "value", "decimals": 2}, "name": {"field": "key", "kind": "text"}}},
        aggregator={"aggregates": ["count"]},
        worker_input={"max_workers": 4, "encoding": "record"},
        router={"workers": 3},
        event_time={"idle_timeout_s": None, "allowed_lateness_s": 5},
    )
    pipeline.drain(limit_s=200)
    return Ran(broker, pipeline, expected)


def write_aborted(broker: str, pipeline: Pipeline) -> None:
    """Write records that no reader may return."""
    producer = Producer({"bootstrap.servers": broker, "transactional.id": f"{pipeline.name}-noise", "log_level": 2})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    noise = json.dumps({"key": "noise", "value": 1, "time": 0, "window_start": 0, "count": 1, "sum": 1, "revision": 0})
    for topic in ("aggregates", "worker-input", "late", "dead-letters"):
        headers = {"schema": b"skewless.tuple.v1"}
        producer.produce(pipeline.settings.topic(topic), noise, key="0/noise", partition=0, headers=headers)
    producer.flush(WAIT_S)
    producer.abort_transaction(WAIT_S)


def run(*command: str) -> list[Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def topic(ran: Ran, name: str) -> list[dict[str, Any]]:
    return run(str(READERS / "topic.sh"), ran.broker, ran.pipeline.settings.topic(name))


def answers(entries: list[dict[str, Any]]) -> dict[tuple[int, str], tuple[int, int]]:
    return {(entry["window_start"], entry["key"]): (entry["count"], entry["sum"]) for entry in entries}


def expected_answers(ran: Ran) -> dict[tuple[int, str], tuple[int, int]]:
    return {at: (count, ran.truth.sums[at]) for at, count in ran.truth.counts.items()}


@pytest.fixture(scope="module")
def with_kcat() -> None:
    """Ensure that kcat is installed."""
    kcat()


@pytest.mark.thorough
def test_kcat_example_reads_the_results(ran: Ran, with_kcat: None) -> None:
    entries = [json.loads(record["payload"]) for record in topic(ran, "aggregates")]
    assert answers(sorted(entries, key=lambda entry: int(entry["revision"]))) == expected_answers(ran)


def test_kcat_example_reads_late_tuples_and_dead_letters_with_their_headers(ran: Ran, with_kcat: None) -> None:
    late = [json.loads(record["payload"]) for record in topic(ran, "late")]
    assert {(entry["partition"], entry["offset"]) for entry in late} == ran.truth.late.keys()
    (dead_letter,) = topic(ran, "dead-letters")
    headers = dict(zip(dead_letter["headers"][::2], dead_letter["headers"][1::2], strict=True))
    assert dead_letter["payload"] == INVALID.decode()
    assert headers["__skewless.errors.topic"] == ran.pipeline.source.topic
    assert headers["__skewless.errors.reason"] == "malformed JSON"


def test_confluent_kafka_example_reads_the_results(ran: Ran) -> None:
    entries = run(sys.executable, str(READERS / "results.py"), ran.broker, ran.pipeline.name)
    assert answers(entries) == expected_answers(ran)
    assert len(entries) == len(ran.truth.counts)


def test_confluent_kafka_example_missing_topic_ends_with_its_name(broker: str) -> None:
    assert "topic typo.aggregates at " in refused(sys.executable, str(READERS / "results.py"), broker, "typo")


@pytest.fixture(scope="module")
def java_reader(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """Compile the example for Java; returns the command that runs it."""
    program, classes = READERS / "Results.java", tmp_path_factory.mktemp("classes")
    compile_java([program], classes, jars.kafka())
    return str(find().path), "-cp", os.pathsep.join(map(str, (classes, *jars.kafka()))), program.stem


@pytest.mark.thorough
def test_java_example_reads_the_results(ran: Ran, java_reader: Sequence[str]) -> None:
    entries = run(*java_reader, ran.broker, ran.pipeline.name)
    assert answers(entries) == expected_answers(ran)
    assert len(entries) == len(ran.truth.counts)


@pytest.mark.thorough
def test_java_example_missing_topic_ends_with_its_name_and_is_not_created(java_reader: Sequence[str]) -> None:
    with Broker(properties={"auto.create.topics.enable": "true"}) as creating:
        for _ in range(2):
            assert "no topic typo.aggregates at " in refused(*java_reader, creating.bootstrap, "typo")


def consumed(ran: Ran) -> list[dict[str, Any]]:
    """Return the tuples that the example consumer prints; it must print no more than there are."""
    command = [sys.executable, str(READERS / "consumer.py"), ran.broker, ran.pipeline.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
        try:
            assert consumer.stdout is not None
            got = [json.loads(consumer.stdout.readline()) for _ in range(ran.truth.tuples)]
            consumer.send_signal(signal.SIGINT)
            others, _ = consumer.communicate(timeout=WAIT_S)
        finally:
            consumer.kill()
    assert (others, consumer.returncode) == ("", 0)
    return got


def counts_and_sums(entries: list[dict[str, Any]], value: str) -> tuple[Counter[tuple[int, str]], ...]:
    found, sums = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for entry in entries:
        at = (entry["time"] // 60_000 * 60_000, entry["key"])
        found[at] += 1
        sums[at] += entry[value]
    return found, sums


def test_consumer_example_of_worker_input_gets_each_tuple_once(ran: Ran) -> None:
    assert counts_and_sums(consumed(ran), "value") == (ran.truth.counts, ran.truth.sums)


def test_consumer_example_of_named_values_gets_each_tuple_once(ran_with_values: Ran) -> None:
    got, expected = consumed(ran_with_values), ran_with_values.truth
    in_cents = Counter({at: 100 * total for at, total in expected.sums.items()})
    assert counts_and_sums(got, "amount") == (expected.counts, in_cents)
    assert all(entry["name"] == entry["key"] for entry in got)


@pytest.mark.parametrize("headers", [{"schema": b"skewless.tuple.v3"}, {}])
def test_consumer_example_unknown_schema_stops_at_it_again(broker: str, headers: dict[str, bytes]) -> None:
    name = f"unknown-{uuid.uuid4().hex[:8]}"
    create_topics(broker, {f"{name}.worker-input": 1})
    producer = Producer({"bootstrap.servers": broker, "log_level": 2})
    producer.produce(f"{name}.worker-input", b"{}", key="k", partition=0, headers=headers)
    assert producer.flush(WAIT_S) == 0
    command = [sys.executable, str(READERS / "consumer.py"), broker, name]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        known = f"{name}.worker-input, partition 0, offset 0: schema {headers.get('schema')!r}"
        assert f"{known}, which this program does not know" in done.stderr


@pytest.mark.parametrize("file", sorted(path.name for path in READERS.iterdir() if path.is_file()))
def test_readers_page_examples_equal_their_files(file: str) -> None:
    shown = {block.name: block.text for page in PAGES for block in blocks(page)}
    assert shown[file] == Path(READERS / file).read_text()
