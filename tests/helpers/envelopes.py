"""Records in every envelope, as their tools write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from helpers.avro import record_of
from skewless.wire.record import Headers

TIME_MS = 1_772_359_200_000
TIME = "2026-03-01T10:00:00Z"
EVENT = {"specversion": "1.0", "id": "01HZQF3K", "source": "/services/orders", "type": "order.placed", "time": TIME}
SOURCE = {
    "version": "3.0.5.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": TIME_MS,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["24023119","24023128"]',
    "ts_us": TIME_MS * 1000,
    "ts_ns": TIME_MS * 1_000_000,
    "schema": "public",
    "table": "orders",
    "txId": 555,
    "lsn": 24023128,
    "xmin": None,
}
ROW_SCHEMA = {
    "type": "struct",
    "optional": True,
    "name": "shop.public.orders.Value",
    "fields": [{"type": "int32", "optional": False, "default": 0, "field": "id"}],
}
SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": "shop.public.orders.Envelope",
    "version": 2,
    "fields": [
        {**ROW_SCHEMA, "field": "before"},
        {**ROW_SCHEMA, "field": "after"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ],
}


def change(op: str, before: str = "null", after: str = "null") -> bytes:
    """Return a change event with rows in JSON, in the order of the fields that Debezium writes."""
    source, end = json.dumps(SOURCE), json.dumps({"op": op, "ts_ms": TIME_MS + 142, "transaction": None})[1:]
    return f'{{"before":{before},"after":{after},"source":{source},{end}'.encode()


def change_schema(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of Avro with which Debezium writes the changes of a table, whose rows have the type `row`."""
    nullable = {name: ["null", kind] for name, kind in (("sequence", "string"), ("txId", "long"), ("xmin", "long"))}
    kinds = {int: "long", str: "string"}
    source = [{"name": name, "type": nullable.get(name) or kinds[type(value)]} for name, value in SOURCE.items()]
    block = record_of("block", id="string", total_order="long", data_collection_order="long")
    fields: dict[str, Any] = {
        "before": ["null", row],
        "after": ["null", row["name"]],
        "source": {"type": "record", "name": "Source", "fields": source},
        "transaction": ["null", block],
        "op": "string",
        "ts_ms": ["null", "long"],
    }
    return {**record_of("Envelope", **fields), "namespace": "shop.public.orders"}


def change_in_avro(op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a change event for the schema of `change_schema`."""
    event = {"op": op, "ts_ms": TIME_MS + 142, "transaction": None}
    return {"before": before, "after": after, "source": SOURCE, **event}


def with_schema(payload: bytes) -> bytes:
    """Return what the JsonConverter writes with schemas."""
    return b'{"schema":%s,"payload":%s}' % (json.dumps(SCHEMA).encode(), payload)


def structured(**members: Any) -> bytes:
    """Return a structured event."""
    return json.dumps({**EVENT, **members}).encode()


def attributes() -> Headers:
    """Return the headers of a binary event."""
    return [(f"ce_{name}", text.encode()) for name, text in EVENT.items()]


STRUCTURED: Headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
RECORDS: dict[tuple[str, str], Callable[[str], tuple[bytes, Headers]]] = {
    ("debezium", "plain"): lambda data: (change("c", after=data), ()),
    ("debezium", "update"): lambda data: (change("u", before='{"k":"old"}', after=data), ()),
    ("debezium", "with schema"): lambda data: (with_schema(change("r", after=data)), ()),
    ("cloudevents", "structured"): lambda data: (structured()[:-1] + f',"data":{data}}}'.encode(), STRUCTURED),
    ("cloudevents", "base64"): lambda data: (structured(data_base64=base64.b64encode(data.encode()).decode()), ()),
    ("cloudevents", "binary"): lambda data: (data.encode(), [*attributes(), ("content-type", b"application/json")]),
}
"""Functions from data in JSON to value and headers of a record, by envelope and form."""
