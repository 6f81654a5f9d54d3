"""Every record of a real run that users may read matches the AsyncAPI document of its pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer

from helpers.asyncapi import Records, message_of
from helpers.kafka import Pipeline, Record, Source, zipf_records
from helpers.waiting import WAIT_S
from skewless import topology
from skewless.asyncapi.document import document
from skewless.kafka.admin.client import Admin
from skewless.operations.dead_letters import read_dead_letters, replay
from skewless.wire.headers import CONTENT_TYPE_HEADER, SCHEMA_HEADER

PARTITIONS = 2
GOOD = 3_000
INVALID = (b"{", b"", None, b"\xff\xfe", b'{"key":"a","value":1}', b'{"key":"a","value":"x","time":1767225600000}')
POISON = b"no columns"
READERS = {"tuples": 1, "worker-input": 1, "partials": 2}
"""Stages that read an internal topic. Each refuses invalid records."""


@dataclass(frozen=True)
class Ran:
    """A pipeline that has reached the end of its source, and its records."""

    document: dict[str, Any]
    records: dict[str, list[Record]]
    pipeline: Pipeline


@pytest.fixture(scope="module")
def ran(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run a pipeline over valid, late and invalid records, with a foreign record on each of its internal topics."""
    source = Source(broker, PARTITIONS)
    source.send(zipf_records(GOOD, PARTITIONS, seed=7, keys=200))
    source.send((0, value) for value in INVALID)
    # In one tick, so that the observer has enough tuples to judge it: the hottest key is above the share of a worker.
    pipeline = Pipeline(
        broker,
        tmp_path_factory.mktemp("schemas"),
        source,
        aggregator={"aggregates": ["count", "sum", "mean", "min", "max"]},
        worker_input={"encoding": "record"},
        event_time={"idle_timeout_s": None, "allowed_lateness_s": 5},
        observer={"tick_s": 86_400},
    )
    poison(broker, pipeline)
    pipeline.drain(limit_s=200)
    source_topic = pipeline.settings.topic("source")
    letters = read_dead_letters(pipeline.settings)
    replay(pipeline.settings, letters, origin=source_topic, target=source_topic)
    records = {row.name: list(pipeline.read(row.name)) for row in topology.needed_topics(pipeline.settings)}
    return Ran(document(pipeline.settings, PARTITIONS), records, pipeline)


def poison(broker: str, pipeline: Pipeline) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "log_level": 2})
    for topic in READERS:
        producer.produce(pipeline.settings.topic(topic), POISON, partition=0)
    assert producer.flush(WAIT_S) == 0


def of_pipeline(records: list[Record]) -> Iterator[Record]:
    return (record for record in records if record.value != POISON or "schema" in record.headers)


def described_records(ran: Ran) -> Iterator[tuple[str, Record]]:
    """Yield the topic and the record of everything that the document describes."""
    for topic in ran.document["channels"].keys() & ran.records.keys():
        records = ran.records[topic] if topic == "dead-letters" else of_pipeline(ran.records[topic])
        yield from ((topic, record) for record in records)


def test_topic_records_of_a_real_run_match_the_asyncapi_document(ran: Ran) -> None:
    held = Records(ran.document)
    assert [problem for topic, record in described_records(ran) for problem in held.problems(topic, record)] == []


def test_public_records_of_a_real_run_have_a_format_and_a_content_type(ran: Ran) -> None:
    public = [row.name for row in topology.TOPICS if row.public and row.name in ran.records]
    assert {"aggregates", "late", "distribution", "hot-keys", "dead-letters"} <= set(public)
    names = {SCHEMA_HEADER, CONTENT_TYPE_HEADER}
    assert [record for topic in public for record in ran.records[topic] if not names <= record.headers.keys()] == []


def test_pipeline_run_of_the_schema_tests_has_records_of_every_message(ran: Ran) -> None:
    found = {kind.name for topic, record in described_records(ran) if (kind := message_of(topic, record))}
    others = {"source-record", "deleted-aggregate"}  # windows without conditions delete no result
    assert found == ran.document["components"]["messages"].keys() - others


def test_public_topics_of_a_run_hold_each_sent_tuple_once(ran: Ran) -> None:
    results, failures = ran.pipeline.results()
    counted = sum(entry["count"] for entry in results.values())
    late, dead_letters = len(ran.records["late"]), len(ran.records["dead-letters"])
    assert failures == []
    assert late > 0
    assert dead_letters == len(INVALID) + sum(READERS.values())
    assert counted + late == GOOD
    ticks = [json.loads(record.value or b"") for record in ran.records["distribution"]]
    assert sum(tick["tuples"] for tick in ticks) == counted


def test_topics_of_a_run_match_the_asyncapi_channels(ran: Ran) -> None:
    channels = {name: row for name, row in ran.document["channels"].items() if name != "source"}
    found = Admin(ran.pipeline.settings.kafka).describe([row["address"] for row in channels.values()])
    for row in channels.values():
        binding, topic = row["bindings"]["kafka"], found[row["address"]]
        options = {
            name: ",".join(value) if isinstance(value, list) else str(value)
            for name, value in binding["topicConfiguration"].items()
        }
        assert binding["partitions"] == topic.partitions
        assert binding.get("replicas", topic.replication_factor) == topic.replication_factor
        assert options.items() <= topic.options.items()
