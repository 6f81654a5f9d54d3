"""Schemas of results for a registry: Avro, JSON Schema and Protobuf, generated from the settings of a pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from skewless.algorithms.aggregates import ResultField
from skewless.wire.aggregates import Numbers

SchemaFormat = Literal["avro", "json_schema", "protobuf"]
REGISTRY_TYPES: dict[SchemaFormat, str] = {"avro": "AVRO", "json_schema": "JSON", "protobuf": "PROTOBUF"}
"""Types of schemas as registries name them."""
PRECISION = 38
"""Digits of an exact number with decimals."""
TIME = pa.timestamp("ms")
_AVRO: dict[pa.DataType, Any] = {
    pa.string(): "string",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    TIME: {"type": "long", "logicalType": "timestamp-millis"},
}
_JSON: dict[pa.DataType, Any] = {
    pa.string(): {"type": "string"},
    pa.int64(): {"type": "integer", "connect.type": "int64"},
    pa.float64(): {"type": "number", "connect.type": "float64"},
    pa.bool_(): {"type": "boolean"},
    TIME: {"type": "integer", "connect.type": "int64"},
}
_PROTOBUF: dict[pa.DataType, str] = {
    pa.string(): "string",
    pa.int64(): "int64",
    pa.float64(): "double",
    pa.bool_(): "bool",
    TIME: "int64",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the results."""

    name: str
    type: pa.DataType
    is_result: bool = False
    """Whether it is a result, which may be null: so an aggregate can be added, or removed, later."""
    can_be_null: bool = False
    """Whether a result is null where it has no values."""
    is_document: bool = False
    """Whether it is a JSON document, as text. Its schema is not known."""

    @property
    def item_type(self) -> pa.DataType:
        """Type of the elements of a list; the type itself otherwise."""
        return self.type.value_type if self.is_list else self.type

    @property
    def is_list(self) -> bool:
        """Whether the field is a list."""
        return bool(pa.types.is_list(self.type))

    @property
    def is_decimal(self) -> bool:
        """Whether the field has exact numbers, or lists of them."""
        return bool(pa.types.is_decimal(self.item_type))


@dataclass(frozen=True, slots=True)
class ResultSchema:
    """Fields of the results of a pipeline, in the order of their records, and their type's name."""

    record: str
    """Name of the type."""
    namespace: str
    columns: Sequence[Column]

    @property
    def full_name(self) -> str:
        """Name of the type with its namespace."""
        return f"{self.namespace}.{self.record}"

    @property
    def documents(self) -> tuple[str, ...]:
        """Names of the fields that are documents."""
        return tuple(column.name for column in self.columns if column.is_document)

    def text(self, schema_format: SchemaFormat) -> str:
        """Return the schema as a registry stores it."""
        match schema_format:
            case "avro":
                return json.dumps(self.avro())
            case "json_schema":
                return json.dumps(self._json_schema())
            case "protobuf":
                return self._protobuf()

    def name_problems(self, schema_format: SchemaFormat) -> Iterator[str]:
        """Yield a line for each field whose name the format cannot have, or which collides with that of another."""
        names = [column.name for column in self.columns]
        if schema_format == "json_schema":
            return
        for name in names:
            if not name.isascii():
                yield f"{name} has other characters than letters of English, digits and underscores"
        if schema_format == "protobuf":
            of_json: dict[str, str] = {}
            for name in names:
                if (first := of_json.setdefault(_json_name(name), name)) != name:
                    yield f"{first} and {name} have the same name in the JSON of Protobuf"

    def avro(self) -> dict[str, Any]:
        """Return the schema in Avro."""
        fields = [
            {"name": column.name, "type": ["null", _avro(column)], "default": None}
            if column.is_result
            else {"name": column.name, "type": _avro(column)}
            for column in self.columns
        ]
        return {"type": "record", "name": self.record, "namespace": self.namespace, "fields": fields}

    def _json_schema(self) -> dict[str, Any]:
        properties = {
            column.name: {"oneOf": [{"type": "null"}, _json(column)]} if column.is_result else _json(column)
            for column in self.columns
        }
        return {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": self.full_name,
            "type": "object",
            "properties": properties,
            "required": [column.name for column in self.columns if not column.is_result],
            # Registries refuse to add a field to an object that may have others.
            "additionalProperties": False,
        }

    def _protobuf(self) -> str:
        lines = [
            f"  {_label(column)}{protobuf_type(column)} {column.name} = {number};" for number, column in self.numbered()
        ]
        return "\n".join(
            ['syntax = "proto3";', f"package {self.namespace};", "", f"message {self.record} {{", *lines, "}", ""]
        )

    def numbered(self) -> list[tuple[int, Column]]:
        """Return the fields with their numbers in Protobuf. A result that is appended does not change the others."""
        first = [column for column in self.columns if not column.is_result]
        return list(enumerate([*first, *(column for column in self.columns if column.is_result)], 1))


def result_schema(
    pipeline: str, results: Iterable[ResultField], numbers: Numbers = "number", key_parts: Iterable[str] = ()
) -> ResultSchema:
    """Return the schema of the records of a pipeline in the topic `aggregates`, by its full name."""
    columns = [
        Column("key", pa.string()),
        Column("window_start", TIME),
        Column("window_end", TIME),
        *(Column(part, pa.string()) for part in key_parts),
        *(
            Column(result.name, _type(result.result_type, numbers), is_result=True, can_be_null=result.can_be_null)
            for result in results
        ),
        Column("revision", pa.int64()),
    ]
    return ResultSchema("Aggregate", _namespace(pipeline), columns)


def pair_schema(pipeline: str) -> ResultSchema:
    """Return the schema of the records of a pipeline in the topic `joined`, by its full name."""
    columns = [
        Column("id", pa.string()),
        Column("left", pa.string(), is_document=True),
        Column("right", pa.string(), is_document=True),
        Column("left_time", TIME),
        Column("right_time", TIME),
    ]
    return ResultSchema("Joined", _namespace(pipeline), columns)


def _json_name(name: str) -> str:
    """Return the name of a field in the JSON of Protobuf."""
    return re.sub("_+(.?)", lambda found: found[1].upper(), name)


def _namespace(pipeline: str) -> str:
    words = re.sub(r"[^A-Za-z0-9_]", "_", pipeline)
    return f"skewless.{'_' if words[0].isdigit() else ''}{words}"


def protobuf_type(column: Column) -> str:
    """Return the type of a field, or of its elements, in Protobuf, which has no exact numbers with decimals."""
    return "string" if column.is_decimal else _PROTOBUF[column.item_type]


def _type(result_type: pa.DataType, numbers: Numbers) -> pa.DataType:
    if pa.types.is_list(result_type):
        return pa.list_(_type(result_type.value_type, numbers))
    return pa.string() if numbers == "text" and pa.types.is_decimal(result_type) else result_type


def _avro(column: Column) -> Any:
    item = column.item_type
    found = _AVRO.get(item) or {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": PRECISION,
        "scale": item.scale,
    }
    return {"type": "array", "items": found} if column.is_list else found


def _json(column: Column) -> dict[str, Any]:
    found = _JSON.get(column.item_type) or {"type": "number"}
    return {"type": "array", "items": found} if column.is_list else found


def _label(column: Column) -> str:
    return "repeated " if column.is_list else "optional " if column.is_result else ""
