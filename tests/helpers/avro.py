"""Records in Avro's binary encoding, written by fastavro, which Skewless does not read with."""

from __future__ import annotations

import io
from typing import Any

from fastavro import parse_schema, schemaless_writer

from skewless.schema_registry.schema import SchemaId, prefix


def encoded(schema: Any, record: Any, schema_id: SchemaId | None = None) -> bytes:
    """Return a record in binary encoding; with a schema id in the wire format of a registry."""
    output = io.BytesIO()
    schemaless_writer(output, parse_schema(schema), record)
    return (b"" if schema_id is None else prefix(schema_id)) + output.getvalue()


def record_of(name: str, **fields: Any) -> dict[str, Any]:
    """Return the schema of a record with fields of these types."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}
