"""Format json: one JSON document per record. A typed decoder reads only the fields that are needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.parsing.field_settings import FieldRef, FieldSettings, value_fields
from skewless.parsing.formats.base import FormatSettings, ParsedBatch
from skewless.parsing.json_path import DecoderSchema, Path, PathAccessor, conflicts, field_setting, lists_of, parse_path
from skewless.parsing.prevalidate import prevalidate
from skewless.parsing.tuple_builder import ExtractedFields, TupleBuilder

_KEY = str | int | float | bool
_NUMBER = str | int | float
_MISSING = re.compile(r"Object missing required field `(?P<name>.+?)`(?: - at `\$\.?(?P<path>.*)`)?")
_MISTYPED = re.compile(r".* - at `\$\.?(?P<path>.*)`")
_INDEX = re.compile(r"\[\d+\]")


class JsonSettings(FormatSettings):
    """Settings of the format json, which has no options."""

    name: Literal["json"] = "json"


@dataclass(frozen=True, slots=True)
class _Level:
    """The elements of the last list that key and some values share, or the whole records."""

    nodes: PathAccessor
    keys: PathAccessor
    values: Mapping[str, PathAccessor]
    """Values by the path of their setting."""


class Json:
    """Reads key, value and time at their paths.

    Keys are strings, numbers or booleans; a record with null or an object as key is invalid. Values and times are
    numbers, or strings that contain a number. If an object contains a name twice, the last one counts.
    """

    settings: ClassVar[type[FormatSettings]] = JsonSettings

    def __init__(self, fields: FieldSettings) -> None:
        self._limits = fields.limits
        self._converter = TupleBuilder(fields)
        self._paths = _paths(fields)
        key, time = self._paths.get("key"), self._paths.get("time")
        values = {name: path for name, path in self._paths.items() if name not in ("key", "time")}
        schema = DecoderSchema(_leaves(fields, self._paths))
        self._decode = msgspec.json.Decoder(schema.type).decode
        # If a value is inside a list, so is the key. Both are then read from the elements of the last shared list.
        self._levels = [
            _Level(
                nodes=schema.accessor(shared),
                keys=schema.accessor(key or (), shared),
                values={
                    name: schema.accessor(path, shared) for name, path in values.items() if lists_of(path) == shared
                },
            )
            for shared in dict.fromkeys(map(lists_of, values.values())) or [()]
        ]
        self._time = schema.accessor(time) if time else None

    @classmethod
    def open(cls, _settings: JsonSettings, fields: FieldSettings) -> Self:
        """See `FormatType.open`."""
        return cls(fields)

    @staticmethod
    def validate(_settings: JsonSettings, fields: FieldSettings) -> Iterator[str]:
        """Yield a line for each field that is missing, that is not a path, or that conflicts with another one."""
        if fields.key.field is None:
            yield "key.field: missing, set the path of the key, such as user.id or hashtags[].text"
        paths = _paths(fields)
        for name, reference in _references(fields).items():
            if reference is not None and name not in paths:
                setting = field_setting(name)
                yield f"{setting}: {reference!r} is not a path: separate names with dots, write [] after a list"
        yield from conflicts(paths)

    def parse(self, values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> ParsedBatch:
        """Read each record's fields; see `Format.parse`."""
        columns = ExtractedFields()
        rows = self._rows(prevalidate(values, self._limits, columns.invalid), columns)
        for level in self._levels:
            nodes, node_rows = level.nodes.follow(rows)
            columns.keys, key_nodes = level.keys.follow(nodes)
            columns.key_rows = (
                node_rows if key_nodes is None else key_nodes if node_rows is None else node_rows[key_nodes]
            )
            for name, accessor in level.values.items():
                node_values, _ = accessor.follow(nodes)
                columns.values[name] = (
                    node_values if key_nodes is None else [node_values[i] for i in key_nodes.tolist()]
                )
        if self._time is not None:
            columns.times, _ = self._time.follow(rows)
        return self._converter.convert(columns, timestamps)

    def _rows(self, values: Sequence[bytes], columns: ExtractedFields) -> list[Any]:
        """Decode the valid records, and set `columns.rows` to their indices."""
        decode, invalid = self._decode, columns.invalid
        candidates = [i for i in range(len(values)) if i not in invalid] if invalid else range(len(values))
        # Record by record, for the reason in `prevalidate`. A record that cannot be decoded ends `extend`, which keeps
        # the rows before it; the next `extend` continues behind it.
        remaining = map(values.__getitem__, candidates)
        rows: list[Any] = []
        errors = 0
        while True:
            try:
                rows.extend(map(decode, remaining))
                break
            except msgspec.ValidationError as error:
                reason = self._reason(str(error))
            except msgspec.DecodeError:
                reason = "malformed JSON"
            invalid[candidates[len(rows) + errors]] = reason
            errors += 1
        columns.rows = [i for i in candidates if i not in invalid] if invalid else candidates
        return rows

    def _reason(self, message: str) -> str:
        """Return the invalid field for an error message of msgspec, which contains paths and types but no payload."""
        missing = _MISSING.fullmatch(message)
        match = missing or _MISTYPED.fullmatch(message)
        error_path = parse_path(_INDEX.sub("[]", match["path"] or "")) or () if match else ()
        if missing:
            error_path = (*error_path, missing["name"])
        for name, path in self._paths.items():
            if path == error_path and not missing:
                return f"{name} has the wrong type or is out of range"
            if path[: len(error_path)] == error_path:
                return f"{name} field missing"
        return "fields of the wrong type"


def _paths(fields: FieldSettings) -> dict[str, Path]:
    """Return the paths of the fields that are set and valid, by the name of their setting."""
    paths = {name: parse_path(text) for name, text in _references(fields).items() if isinstance(text, str)}
    return {name: path for name, path in paths.items() if path}


def _references(fields: FieldSettings) -> dict[str, FieldRef | None]:
    """Return the fields by the name of their setting."""
    values = {name: reference for name, (_, reference) in value_fields(fields).items()}
    return {"key": fields.key.field, **values, "time": fields.time.field}


def _leaves(fields: FieldSettings, paths: Mapping[str, Path]) -> dict[Path, Any]:
    """Return the types of the fields by path. A field that may be missing may be null."""
    settings = {name: value for name, (value, _) in value_fields(fields).items()}
    leaves: dict[Path, Any] = {}
    for name, path in paths.items():
        value = settings.get(name)
        leaf = _KEY if name == "key" or (value is not None and value.kind == "text") else _NUMBER
        if value is not None and value.missing == "skip":
            leaf |= None
        leaves[path] = leaves[path] | leaf if path in leaves else leaf
    return leaves
