"""Schemas of results in a real registry: registered under each subject, and refused if they are incompatible."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from helpers.registry_gate import Gate
from helpers.schema_registry import RegistryServer
from helpers.waiting import WAIT_S
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.result_codec import (
    aggregates_output,
    joined_output,
    pair_reader,
    pair_writer,
    result_reader,
    result_writer,
)
from skewless.errors import ConfigurationError, RegistryError, UnreachableError
from skewless.lab.local.ports import find_free_ports
from skewless.schema_registry.result_schemas import REGISTRY_TYPES, SchemaFormat
from skewless.wire.aggregates import aggregate_type
from skewless.wire.joined import JoinedRecord

FORMATS: tuple[SchemaFormat, ...] = get_args(SchemaFormat)
RESULTS: list[Any] = ["count", {"sum": "value", "as": "total"}]


def settings_of(url: str, schema_format: str, name: str = "", **aggregator: Any) -> PipelineSettings:
    return PipelineSettings.model_validate(
        {
            "name": name or f"p-{uuid.uuid4().hex[:8]}",
            "source": {"topic": "t"},
            "registry": {"url": url, "connect_timeout_s": 1, "request_timeout_s": WAIT_S},
            "splitter": {"key": {"field": "k"}, "value": {"field": "v", "decimals": 2}},
            "aggregator": {"format": schema_format, "aggregates": RESULTS, **aggregator},
        }
    )


def require_compatibility(registry: RegistryServer, subject: str) -> None:
    """Let the registry refuse incompatible schemas, as that of Confluent does by default."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        client.set_compatibility(subject, "BACKWARD")


def record_of(settings: PipelineSettings) -> msgspec.Struct:
    return aggregate_type(settings.results)("é", 0, 60_000, 3, 12.5, 1)


@pytest.mark.parametrize("schema_format", FORMATS)
@pytest.mark.parametrize("subject", ["topic", "record", "topic_record"])
def test_writer_registers_its_schema_and_the_reader_finds_it(
    registry_server: RegistryServer, schema_format: SchemaFormat, subject: str
) -> None:
    settings = settings_of(registry_server.url, schema_format, subject=subject)
    value = result_writer(settings).encode(record_of(settings))
    assert result_writer(settings).encode(record_of(settings)) == value, "the same schema has the same id"
    name = aggregates_output(settings).subject
    assert registry_server.get(f"/subjects/{name}/versions/latest")["id"] == int.from_bytes(value[1:5], "big")
    found = json.loads(result_reader(settings)(value))
    expected = {"key": "é", "window_start": 0, "window_end": 60_000, "count": 3, "total": 12.5, "revision": 1}
    assert found == expected


def test_values_are_read_by_the_deserializers_of_confluent(registry_server: RegistryServer) -> None:
    context = SerializationContext("t", MessageField.VALUE)
    with SchemaRegistryClient({"url": registry_server.url}) as client:
        avro = settings_of(registry_server.url, "avro")
        found = AvroDeserializer(client)(result_writer(avro).encode(record_of(avro)), context)
        assert (found["key"], str(found["total"]), found["window_end"].timestamp()) == ("é", "12.50", 60)
        with_json = settings_of(registry_server.url, "json_schema")
        schema = aggregates_output(with_json).schema.text("json_schema")
        value = result_writer(with_json).encode(record_of(with_json))
        assert JSONDeserializer(schema, schema_registry_client=client)(value, context)["total"] == 12.5


@pytest.mark.parametrize("schema_format", FORMATS)
def test_writer_whose_schema_is_incompatible_is_refused_and_names_the_fields(
    registry_server: RegistryServer, schema_format: SchemaFormat
) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    result_writer(settings_of(registry_server.url, schema_format, name))
    require_compatibility(registry_server, f"{name}.aggregates-value")
    # A number that becomes a list of numbers.
    changed = [{"largest": "value", "n": 2, "as": "count"}]
    with pytest.raises(ConfigurationError, match=r"incompatible schema of .*-value .*field count was ") as refused:
        result_writer(settings_of(registry_server.url, schema_format, name, aggregates=changed))
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(("before", "after"), [("avro", "protobuf"), ("json_schema", "avro"), ("protobuf", "avro")])
def test_writer_whose_subject_has_a_schema_of_another_type_is_refused_and_names_the_remedies(
    registry_server: RegistryServer, before: SchemaFormat, after: SchemaFormat
) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    result_writer(settings_of(registry_server.url, before, name))
    require_compatibility(registry_server, f"{name}.aggregates-value")
    words = (
        rf"^aggregator\.format: .* with the type {REGISTRY_TYPES[before]}, .* delete this subject, set aggregator\.sub"
    )
    with pytest.raises(ConfigurationError, match=words):
        result_writer(settings_of(registry_server.url, after, name))


@pytest.mark.parametrize("schema_format", FORMATS)
def test_writer_with_one_more_result_is_compatible_and_earlier_records_are_read(
    registry_server: RegistryServer, schema_format: SchemaFormat
) -> None:
    before = settings_of(registry_server.url, schema_format)
    value = result_writer(before).encode(record_of(before))
    require_compatibility(registry_server, f"{before.name}.aggregates-value")
    after = settings_of(registry_server.url, schema_format, before.name, aggregates=[*RESULTS, "max"])
    assert result_writer(after).encode is not None
    assert json.loads(result_reader(after)(value))["total"] == 12.5


def test_writer_whose_address_is_not_a_registry_is_refused_in_one_line(registry_server: RegistryServer) -> None:
    """The answer 404 of an ingress does not mean that the subject is new."""
    gate = Gate(registry_server.port, status=404, content=b"<html>")
    with gate.running(), pytest.raises(RegistryError, match=r"set registry\.url to the address of") as refused:
        result_writer(settings_of(gate.url, "avro"))
    assert refused.value.exit_code == 3
    gate.status, gate.part = 404, "/versions"
    gate.content = b'{"error_code": 40401, "message": "Subject not found."}'
    with gate.running(), pytest.raises(RegistryError, match="refuses to register the schema of"):
        result_writer(settings_of(gate.url, "avro"))


def join_of(url: str, schema_format: str, **join: Any) -> PipelineSettings:
    sides = {side: {"topic": side, "id": {"field": "id"}} for side in ("left", "right")}
    return PipelineSettings.model_validate(
        {
            "name": f"p-{uuid.uuid4().hex[:8]}",
            "registry": {"url": url},
            "join": {**sides, "apart_s": 1, "format": schema_format, **join},
        }
    )


PAIR = JoinedRecord("é", msgspec.Raw(b'{"id":"\xc3\xa9","price":1.50}'), msgspec.Raw(b'"a,b"'), 0, 60_000)


@pytest.mark.parametrize("schema_format", FORMATS)
@pytest.mark.parametrize("subject", ["topic", "record", "topic_record"])
def test_writer_of_pairs_registers_their_schema_and_the_reader_finds_it(
    registry_server: RegistryServer, schema_format: SchemaFormat, subject: str
) -> None:
    settings = join_of(registry_server.url, schema_format, subject=subject)
    value = pair_writer(settings).encode(PAIR)
    name = joined_output(settings).subject
    assert registry_server.get(f"/subjects/{name}/versions/latest")["id"] == int.from_bytes(value[1:5], "big")
    assert pair_reader(settings)(value) == msgspec.json.encode(PAIR)


def test_pairs_are_read_by_the_deserializer_of_confluent(registry_server: RegistryServer) -> None:
    settings = join_of(registry_server.url, "avro")
    with SchemaRegistryClient({"url": registry_server.url}) as client:
        context = SerializationContext("t", MessageField.VALUE)
        found = AvroDeserializer(client)(pair_writer(settings).encode(PAIR), context)
    assert (found["id"], json.loads(found["left"])["price"], found["right"]) == ("é", 1.5, '"a,b"')
    assert found["right_time"].timestamp() == 60


@pytest.mark.parametrize("schema_format", FORMATS)
def test_writer_of_pairs_whose_subject_has_another_schema_is_refused_and_names_the_fields(
    registry_server: RegistryServer, schema_format: SchemaFormat
) -> None:
    settings = join_of(registry_server.url, schema_format)
    output = joined_output(settings)
    numbers = [replace(column, type=pa.int64(), is_document=False) for column in output.schema.columns]
    text = replace(output.schema, columns=numbers).text(schema_format)
    registry_server.register(output.subject, text, REGISTRY_TYPES[schema_format])
    require_compatibility(registry_server, output.subject)
    with pytest.raises(ConfigurationError, match=r"join\.format: .* incompatible schema .*field id was ") as refused:
        pair_writer(settings)
    assert refused.value.exit_code == 2


def test_writer_without_an_answer_of_the_registry_is_unreachable() -> None:
    (port,) = find_free_ports(1)
    with pytest.raises(UnreachableError, match="no schema registry answers"):
        result_writer(settings_of(f"http://127.0.0.1:{port}", "avro"))
