"""The records of `skewless smoke-test` in the formats with schemas, with a real registry."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from helpers.avro import encoded, record_of
from helpers.kafka import STAGES, Pipeline, Source, create_topics
from helpers.schema_registry import RegistryServer
from helpers.waiting import WAIT_S, until
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.parsing.record_parser import RecordParser
from skewless.schema_registry.schema import VALUE_HEADER, prefix
from skewless.smoke_test import check, sample_records
from skewless.smoke_test.schema_samples import sample_of

pytestmark = pytest.mark.broker

AT = 1_700_000_000_123
USER = record_of("User", country="string", id={"type": "string", "logicalType": "uuid"})
CLICK = record_of(
    "Click",
    user=["null", USER],
    owner="User",
    price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    at={"type": "long", "logicalType": "timestamp-micros"},
    kind={"type": "enum", "name": "Kind", "symbols": ["view", "buy"]},
    hash={"type": "fixed", "name": "Hash", "size": 3},
    tags={"type": "array", "items": "string"},
    note=["null", "string"],
)
PROTOBUF = """
syntax = "proto3"; package acme;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message Other { int32 x = 1; }
message User { google.protobuf.StringValue country = 1; }
message Click { User user = 1; int32 price = 2; google.protobuf.Timestamp at = 3; repeated string tags = 4; }
"""
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
FIELDS = {"key": {"field": "user.country"}, "value": {"field": "price"}, "time": {"field": "at"}}


def settings_of(broker: str, url: str, topic: str, **splitter: Any) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "name": "clicks",
            "source": {"topic": topic},
            "kafka": {"bootstrap_servers": broker, "connect_timeout_s": WAIT_S},
            "registry": {"url": url},
            "splitter": splitter,
            "aggregator": {"aggregates": ["count"]},
        }
    )


def send(broker: str, topic: str, value: bytes | None, **headers: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    producer.produce(topic, value, headers=list(headers.items()))
    assert producer.flush(WAIT_S) == 0


def require_valid(settings: PipelineSettings, topic: str) -> None:
    """Check that generated records give the splitter their keys, values and times."""
    keys = sample_records.keys(20, "check")
    records = sample_records.make(settings.splitter, keys, AT, sample_of(settings, topic))
    parsed = RecordParser(settings.splitter).parse(records)
    assert (parsed.invalid, parsed.keys) == ([], keys)
    assert set(parsed.values["value"].to_pylist()) == {1}
    assert set(parsed.times.tolist()) == {AT}


@pytest.mark.parametrize("in_header", [False, True])
def test_smoke_test_records_of_avro_have_the_schema_of_the_newest_record(
    *, in_header: bool, broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    topic = tmp_path.name
    create_topics(broker, {topic: 2})
    settings = settings_of(broker, registry_server.url, topic, format="avro", **FIELDS)
    with pytest.raises(ConfigurationError, match=f"the registry has no subject {topic}-value, and the topic has no"):
        sample_of(settings, topic)
    registry_server.register(f"{topic}-value", record_of("Older", key="string"))
    with pytest.raises(ConfigurationError, match=r"field \w+ does not exist in schema \d+"):
        require_valid(settings, topic)
    # Another subject than that of the topic: serializers may name it after the record.
    schema_id = registry_server.register("acme.Click", CLICK)
    value = prefix(schema_id) + b"\xff"
    if in_header:
        send(broker, topic, value[5:], **{VALUE_HEADER: value[:5]})
    else:
        send(broker, topic, value)
    send(broker, topic, None)
    require_valid(settings, topic)
    require_valid(
        settings_of(broker, registry_server.url, topic, format="avro", **{**FIELDS, "key": {"field": "tags[]"}}), topic
    )


def test_smoke_test_records_of_protobuf_are_of_the_message_of_the_newest_record(
    broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    topic = tmp_path.name
    create_topics(broker, {topic: 1})
    schema_id = registry_server.register(f"{topic}-value", PROTOBUF, "PROTOBUF")
    settings = settings_of(broker, registry_server.url, topic, format="protobuf", **FIELDS)
    with pytest.raises(ConfigurationError, match=rf"field \w+ does not exist in schema {schema_id}"):
        require_valid(settings, topic)  # without a record, it is the first message
    send(broker, topic, prefix(schema_id) + b"\x02\x04")
    require_valid(settings, topic)
    with pytest.raises(ConfigurationError, match=f"schema {schema_id} of topic {topic} is of type PROTOBUF"):
        sample_of(settings_of(broker, registry_server.url, topic, format="json_schema", **FIELDS), topic)


def test_smoke_test_records_of_json_schema_have_the_newest_schema_of_the_subject(
    broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    topic = tmp_path.name
    create_topics(broker, {topic: 1})
    registry_server.register(f"{topic}-value", JSON_SCHEMA, "JSON")
    require_valid(settings_of(broker, registry_server.url, topic, format="json_schema", **FIELDS), topic)


@pytest.mark.thorough
def test_smoke_test_of_a_running_pipeline_of_avro_finds_its_counts(
    broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    source = Source(broker, 2)
    schema_id = registry_server.register(f"{source.topic}-value", CLICK)
    tested = Pipeline(
        broker, tmp_path, source, splitter={"format": "avro", **FIELDS}, registry={"url": registry_server.url}
    )
    user = {"country": "ch", "id": "00000000-0000-0000-0000-000000000000"}
    click = {
        "user": user,
        "owner": user,
        "price": Decimal(1),
        "at": AT * 1000,
        "kind": "buy",
        "hash": b"abc",
        "tags": [],
    }
    source.send([(0, encoded(CLICK, {**click, "note": None}, schema_id))])
    with tested.running() as supervisor:
        until(lambda: all(map(tested.shares, STAGES)), each=lambda: supervisor.poll(time.monotonic()))
        assert check.run(tested.settings, 100, "check", WAIT_S).records == 100
