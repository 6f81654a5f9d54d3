"""`skewless inspect` and `skewless init` with topics whose records have schemas of a real registry."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from google.protobuf import message_factory

import skewless as sk
from helpers.avro import encoded, record_of
from helpers.kafka import START_MS, create_topics
from helpers.registry_gate import Gate, basic
from helpers.schema_registry import RegistryServer
from skewless.cli.main import main
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.schema_registry.schema import VALUE_HEADER, Schema, prefix

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("patient_commands")]

RECORDS = 200
USER = record_of(
    "User", country="string", id={"type": "string", "logicalType": "uuid"}, labels={"type": "map", "values": "string"}
)
CLICK = record_of(
    "Click",
    user=["null", USER],
    at={"type": "long", "logicalType": "timestamp-micros"},
    day={"type": "int", "logicalType": "date"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    share="double",
    tags={"type": "array", "items": "string"},
    photo="bytes",
)
PROTOBUF = """
syntax = "proto3"; package acme;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message User { google.protobuf.StringValue country = 1; }
message Other { string country = 1; }
enum Kind { VIEW = 0; BUY = 1; }
message Click {
  User user = 1; google.protobuf.Timestamp at = 2; map<string, int64> sizes = 3; bytes photo = 4;
  repeated string tags = 5; optional double price = 6; Kind kind = 7;
}
"""
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


def country(number: int) -> str:
    """Return the country of a record: every second record has the same one."""
    return "ch" if number % 2 else f"c{number % 9}"


def avro(schema_id: int, number: int) -> bytes:
    user = {"country": country(number), "id": str(UUID(int=number)), "labels": {"eu": "yes"}}
    at = (START_MS + number * 1000) * 1000
    record = {"user": user, "at": at, "day": date(2026, 3, 1), "price": Decimal("12.50"), "share": float("nan")}
    return encoded(CLICK, {**record, "tags": ["a"], "photo": b"\xff"}, schema_id)


def protobuf(schema_id: int, number: int) -> bytes:
    types = compile_text(Schema("PROTOBUF", PROTOBUF)).message_types_by_name
    click: Any = message_factory.GetMessageClass(types["Click"])(tags=["a"], sizes={"x": 1}, photo=b"\xff", kind=1)
    click.user.country.value = country(number)
    click.at.FromMilliseconds(START_MS + number * 1000)
    # The message is the third one of the schema.
    return prefix(schema_id) + b"\x02\x04" + bytes(click.SerializeToString())


def json_schema(schema_id: int, number: int) -> bytes:
    click = {"user": {"country": country(number)}, "at": START_MS + number * 1000}
    return prefix(schema_id) + json.dumps(click).encode()


def write(broker: str, topic: str, record: Callable[[int, int], bytes], schema_id: int, *, in_header: bool) -> None:
    """Write records, and two that cannot be read."""
    create_topics(broker, {topic: 1})
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(RECORDS):
        value = record(schema_id, number)
        headers = [(VALUE_HEADER, value[:5])] if in_header else None
        producer.produce(topic, value[5:] if in_header else value, headers=headers)
    producer.produce(topic, prefix(schema_id) + b"\xff" * 20)
    producer.produce(topic, prefix(987_654) + b"\xff" * 20)
    assert producer.flush(60) == 0


def run(*command: object, **environment: str) -> Result:
    return CliRunner().invoke(main, [*map(str, command)], env=environment)


@pytest.mark.parametrize(
    ("name", "title", "kind", "schema", "record", "in_header"),
    [
        ("avro", "Avro", "AVRO", CLICK, avro, False),
        ("avro", "Avro", "AVRO", CLICK, avro, True),
        ("protobuf", "Protobuf", "PROTOBUF", PROTOBUF, protobuf, False),
        ("json_schema", "JSON Schema", "JSON", JSON_SCHEMA, json_schema, False),
    ],
    ids=["avro", "avro-header", "protobuf", "json_schema"],
)
def test_init_and_inspect_records_with_a_schema_id_need_the_registry_and_then_have_fields(  # noqa: PLR0913
    *,
    name: str,
    title: str,
    kind: str,
    schema: Any,
    record: Callable[[int, int], bytes],
    in_header: bool,
    broker: str,
    registry_server: RegistryServer,
    tmp_path: Path,
) -> None:
    topic, file = f"{tmp_path.name}", tmp_path / "pipeline.yaml"
    schema_id = registry_server.register(f"{topic}-value", schema, kind)
    write(broker, topic, record, schema_id, in_header=in_header)
    init = ("init", topic, "-b", broker, "-o", file, "--yes")

    refused = run(*init)
    assert (refused.exit_code, file.exists()) == (1, False)
    assert f"its records are binary with schema ids {schema_id}, 987654 of a registry; add --registry URL" in (
        refused.stderr
    )

    shown = run("inspect", topic, "-b", broker, "--registry", registry_server.url, "--json")
    assert shown.exit_code == 0, shown.output
    report = json.loads(shown.stdout)
    first, at = report["keys"][0], report["times"][-1]
    assert report["format"]["description"] == f"{title}, schema ids {schema_id}, 987654"
    assert (first["name"], first["top"][0]["count"], first["tuples"]) == ("user.country", RECORDS // 2, RECORDS)
    assert (at["name"], at["first_ms"], at["records"]) == ("at", START_MS, RECORDS)
    assert {"photo", "share"}.isdisjoint(key["name"] for key in report["keys"])

    accepted = run(*init, "--registry", registry_server.url)
    assert accepted.exit_code == 0, accepted.output
    written = yaml.safe_load(file.read_text())
    assert written["registry"] == {"url": registry_server.url}
    assert written["splitter"]["format"] == {"name": name}
    assert (written["splitter"]["key"], written["splitter"]["time"]["field"]) == ({"field": "user.country"}, "at")
    assert run("config", "check", "-f", file).exit_code == 0
    # The section `registry` of a file counts, too, and so does that of the Python API.
    assert json.loads(run("inspect", topic, "-f", file, "--json").stdout)["keys"] == report["keys"]
    found = sk.inspect(topic, brokers=broker, registry={"url": registry_server.url}, key="user.country")
    assert found.to_dict()["keys"][0]["top"] == first["top"]


def test_inspect_registry_that_refuses_or_does_not_know_the_records_is_named(
    broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    topic = tmp_path.name
    write(broker, topic, avro, 987_655, in_header=False)
    inspect = ("inspect", topic, "-b", broker, "--registry")
    other = run(*inspect, registry_server.url)
    assert (other.exit_code, "schema ids 987655, 987654, unknown to the registry" in other.stdout) == (0, True)
    assert "advice      check that --registry is the registry of the producers" in other.stdout
    without_fields = registry_server.register(f"{topic}-value", '"string"')
    write(broker, f"{topic}-text", lambda _id, _number: encoded("string", "a", without_fields), 0, in_header=False)
    text = run("inspect", f"{topic}-text", "-b", broker, "--registry", registry_server.url).stdout
    assert f"binary with schema ids {without_fields}, 987654, without fields" in text
    wrong = run(*inspect, "registry:8081")
    assert (wrong.exit_code, "error: --registry: should be addresses of" in wrong.stderr) == (2, True)
    gate = Gate(registry_server.port, accepts=basic("u", "right"))
    login = {"USERNAME": "u", "ALLOW_UNENCRYPTED": "true"}
    with gate.running():
        refused, accepted = (
            run(*inspect, gate.url, **{f"SKEWLESS__REGISTRY__{name}": value for name, value in variables.items()})
            for variables in (login | {"PASSWORD": "canary7f3a91c2"}, login | {"PASSWORD": "right"})
        )
    assert (refused.exit_code, "refuses this client (401)" in refused.stderr) == (3, True)
    assert "canary7f3a91c2" not in refused.output
    assert accepted.exit_code == 0
