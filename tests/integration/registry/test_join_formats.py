"""A join of a topic of Avro and a topic of Protobuf with a real registry, whose pairs have both as JSON."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory

from helpers.avro import encoded, record_of
from helpers.joined import Joined, traffic
from helpers.kafka import START_MS, read
from helpers.schema_registry import RegistryServer
from helpers.tiers import thorough_except
from skewless.algorithms.join.window_join import Side
from skewless.config.pipeline_settings import PipelineSettings
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.schema_registry.schema import Schema, prefix

pytestmark = pytest.mark.broker

RECORDS = 1_000
FIRST = record_of("Impression", id="string", time="long", offset="int", partition="int")
SECOND = {**FIRST, "fields": [{"name": "page", "type": ["null", "string"], "default": None}, *FIRST["fields"]]}
CLICK = 'syntax = "proto3"; message Click { string id = 1; int64 time = 2; int32 offset = 3; int32 partition = 4; }'


@pytest.mark.parametrize(
    ("repartition", "result_format"),
    thorough_except([("never", "avro")], [("never", "avro"), ("never", "json"), ("always", "protobuf")]),
)
def test_join_of_avro_and_protobuf_with_killed_processes_is_exact(
    broker: str, registry_server: RegistryServer, tmp_path: Path, repartition: str, result_format: str
) -> None:
    tested = Joined(broker, tmp_path, repartition=repartition)
    tested.document["registry"] = {"url": registry_server.url}
    tested.document["join"]["format"] = result_format
    for side, name in ((Side.LEFT, "avro"), (Side.RIGHT, "protobuf")):
        tested.document["join"][side.value]["format"] = name
    tested.load()
    subject = tested.topics[Side.LEFT]
    schemas = itertools.cycle([(schema, registry_server.register(subject, schema)) for schema in (FIRST, SECOND)])
    click_id = registry_server.register(tested.topics[Side.RIGHT], CLICK, "PROTOBUF")
    descriptor = compile_text(Schema("PROTOBUF", CLICK)).message_types_by_name["Click"]
    click: Any = message_factory.GetMessageClass(descriptor)

    def avro(record: dict[str, Any]) -> bytes:
        schema, schema_id = next(schemas)
        return encoded(schema, {"page": "/", **record} if schema is SECOND else record, schema_id)

    tested.encode = {
        Side.LEFT: avro,
        Side.RIGHT: lambda record: prefix(click_id) + b"\0" + click(**record).SerializeToString(),
    }
    logs = traffic(RECORDS, 3)
    tested.hold(logs[Side.LEFT])  # so that all of them are restored
    log = {Side.RIGHT: logs[Side.RIGHT]}
    tested.send_while_killing(log, random.Random(3), times=2, processes=1)  # noqa: S311 - no secret
    tested.producer.produce(tested.topics[Side.LEFT], prefix(987_654) + b"\0", b"1", partition=1, timestamp=START_MS)
    tested.flush()
    tested.drain()
    wrong = tested.wrong() if repartition == "never" else tested.wrong_repartitioned()
    assert wrong == {}
    assert any("page" in record["left"] for record in tested.read("joined"))
    (letter,) = read(broker, tested.settings.topic("dead-letters"))
    assert letter.headers["__skewless.errors.reason"] == b"left: schema 987654 is unknown to the registry"


def test_join_side_without_a_registry_is_refused() -> None:
    sides = {side.value: {"topic": side.value, "format": "avro", "id": {"field": "id"}} for side in Side}
    with pytest.raises(
        ValueError, match=r"join.left.format: schemas are missing for the format avro: set registry.url"
    ):
        PipelineSettings.model_validate({"name": "j", "join": {**sides, "apart_s": 1}})
