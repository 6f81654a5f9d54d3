"""Format json: one JSON document per record. A typed decoder reads only the fields that are needed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import FieldRef, FieldSettings, LimitSettings, value_fields
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.formats.base import (
    Decoder,
    DetectedFormat,
    ExtractedFields,
    Format,
    FormatSettings,
    OptionalFields,
    SampledField,
    is_part,
    source_label,
)
from skewless.parsing.json_path import (
    NAME,
    DecoderSchema,
    Path,
    PathAccessor,
    accepts_null,
    document_of,
    lists_of,
    parse_path,
    path_problems,
    paths_of,
)
from skewless.parsing.prevalidate import prevalidate

_KEY = str | int | float | bool
_NUMBER = str | int | float
_MISSING = re.compile(r"Object missing required field `(?P<name>.+?)`(?: - at `\$\.?(?P<path>.*)`)?")
_MISTYPED = re.compile(r".* - at `\$\.?(?P<path>.*)`")
MALFORMED = "malformed JSON"
OUT_OF_RANGE = "has a number that is out of range"
_INDEX = re.compile(r"\[\d+\]")
MAX_PATHS = 200
MAX_DEPTH = 5
MAX_ELEMENTS = 20
"""Limits of the fields that are looked at in a sampled record."""
MAX_SHOWN = 60
RENAME = "a function in splitter.python can rename it (docs/how-to/python.md)"
_decode_any = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class JsonSettings(FormatSettings):
    """Settings of the format json, which has no options."""

    name: Literal["json"] = "json"


@dataclass(frozen=True, slots=True)
class _Level:
    """The elements of the last list that key and some values share, or the whole records."""

    nodes: PathAccessor
    keys: PathAccessor | None
    """None if the key is not a field."""
    values: Mapping[str, PathAccessor]
    """Values by the path of their setting."""


class Json(Format):
    """One JSON object per record.

    Keys are strings, numbers or booleans; a record with null or an object as key is invalid. Values and times are
    numbers, or strings that contain a number. If an object contains a name twice, the last one counts.
    """

    settings: ClassVar[type[FormatSettings]] = JsonSettings
    field_names: ClassVar[str] = (
        "path such as `user.id`, `hashtags[]` or `entities.hashtags[].text` (one tuple per element)"
    )
    kind: ClassVar[str] = "JSON"
    in_json: ClassVar[bool] = True
    min_share: ClassVar[float] = 0.5  # nothing else is a JSON object: the other values are broken records

    def __init__(self, _settings: JsonSettings, fields: FieldSettings) -> None:
        self._limits = fields.limits
        self._paths = paths_of(fields.required)
        self._labels = {path: source_label(path, fields) for path in self._paths}
        key, time = self._paths.get("key"), self._paths.get("time")
        values = {name: self._paths[name] for name in value_fields(fields)}
        parts = {name: path for name, path in self._paths.items() if is_part(name)}
        leaves = _leaves(fields, self._paths)
        schema = DecoderSchema(leaves)
        self._decode = msgspec.json.Decoder(schema.type).decode
        untyped = DecoderSchema({path: Any | None if accepts_null(leaf) else Any for path, leaf in leaves.items()})
        self._decode_texts = msgspec.json.Decoder(untyped.type, float_hook=str).decode
        """Returns the same as `_decode`, except that numbers which are not integers are text."""
        # If a value is inside a list, so is the key. Both are then read from the elements of the last shared list.
        self._levels = [
            _Level(
                nodes=schema.accessor(shared),
                keys=schema.accessor(key, shared) if key is not None else None,
                values={
                    name: schema.accessor(path, shared) for name, path in values.items() if lists_of(path) == shared
                },
            )
            for shared in dict.fromkeys(map(lists_of, values.values())) or [()]
        ]
        self._time = schema.accessor(time) if time else None
        self._parts = {name: schema.accessor(path) for name, path in parts.items()}
        self._optional = paths_of(fields.optional)
        # Only the fields of the root are typed. A field inside something else than an object is absent.
        names = dict.fromkeys(path[0] for path in self._optional.values())
        self._roots = {name: f"f{i}" for i, name in enumerate(names)}
        roots = [(attribute, Any, msgspec.field(name=name, default=None)) for name, attribute in self._roots.items()]
        self._decode_optional = msgspec.json.Decoder(msgspec.defstruct("Object", roots, gc=False)).decode

    @classmethod
    def validate(cls, _settings: JsonSettings, fields: FieldSettings) -> Iterator[str]:
        """Return a line for each field that is missing, that is not a path, or that conflicts with another one."""
        return path_problems(fields)

    @classmethod
    def decoder(cls, _settings: JsonSettings, limits: LimitSettings) -> Decoder:
        """Return a function that decodes any JSON; see `Format.decoder`. Numbers with decimals are `float`."""

        def decode(values: Sequence[bytes | None], invalid: Problems) -> tuple[list[int], list[Any]]:
            sized = prevalidate(values, limits, invalid)
            rows: list[int] = []
            found: list[Any] = []
            for row, value in enumerate(sized):
                if row in invalid:
                    continue
                try:
                    found.append(_decode_any(value))
                except msgspec.DecodeError:
                    invalid[row] = MALFORMED if _is_malformed(value) else OUT_OF_RANGE
                    continue
                rows.append(row)
            return rows, found

        return decode

    def extract(self, values: Sequence[bytes | None]) -> ExtractedFields:
        """Read each record's fields; see `Format.extract`."""
        columns = ExtractedFields()
        sized = prevalidate(values, self._limits, columns.invalid)
        self._fill(columns, self._rows(sized, columns))
        # Without a reference to `columns`: a cycle would keep the batch in memory.
        columns.reread = partial(self._reread, sized, columns.rows, columns.key_rows)
        return columns

    def _fill(self, columns: ExtractedFields, documents: list[Any]) -> None:
        """Set the columns to the fields of decoded records."""
        for level in self._levels:
            nodes, node_rows = level.nodes.follow(documents)
            key_nodes = None
            if level.keys is not None:
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
            columns.times, _ = self._time.follow(documents)
        columns.parts = {name: part.follow(documents)[0] for name, part in self._parts.items()}

    def _reread(
        self,
        values: Sequence[bytes],
        rows: Sequence[int],
        key_rows: NDArray[np.intp] | None,
        path: str,
        indices: Sequence[int],
    ) -> Sequence[Scalar]:
        """Decode the records of some entries again; see `ExtractedFields.reread`."""
        row_of = np.arange(len(rows)) if key_rows is None else key_rows
        needed = np.unique(row_of[indices])
        again = ExtractedFields()
        self._fill(again, [self._decode_texts(values[rows[row]]) for row in needed.tolist()])
        entries = cast("Sequence[Scalar]", again.values[path])
        positions = np.searchsorted(np.flatnonzero(np.isin(row_of, needed)), indices)
        return [entries[i] for i in positions.tolist()]

    def lookup(self, values: Sequence[bytes | None]) -> OptionalFields:
        """Read the fields that exist; see `Format.lookup`."""
        invalid: Problems = {}
        sized = prevalidate(values, self._limits, invalid)
        rows: list[int] = []
        documents: list[Any] = []
        for i, value in enumerate(sized):
            if i in invalid:
                continue
            try:
                documents.append(self._decode_optional(value))
            except msgspec.DecodeError:
                if _is_malformed(value):
                    invalid[i] = MALFORMED
                    continue
                if value.lstrip().startswith(b"{"):
                    invalid[i] = OUT_OF_RANGE
                    continue
                documents.append(None)  # JSON, but not an object
            rows.append(i)
        columns = {}
        for name, (root, *path) in self._optional.items():
            attribute = self._roots[root]
            columns[name] = [_find(getattr(document, attribute, None), tuple(path)) for document in documents]
        return OptionalFields(rows, columns, invalid)

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
            except msgspec.DecodeError as error:
                row = candidates[len(rows) + errors]
                invalid[row] = MALFORMED if _is_malformed(values[row]) else self._reason(str(error))
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
                return f"{self._labels[name]} has the wrong type or is out of range"
            if path[: len(error_path)] == error_path:
                return f"{self._labels[name]} is missing"
        return "fields of the wrong type"

    @classmethod
    def sample(cls, _settings: JsonSettings, _key: str, fields: Sequence[tuple[FieldRef, Any]]) -> bytes:
        """Return a document with these fields; see `Format.sample`."""
        return json.dumps(document_of(fields)).encode()

    @classmethod
    def decode(cls, value: bytes) -> dict[str, Any] | None:
        """Decode an object; see `Format.decode`."""
        try:
            return _decode_object(value)
        except (ValueError, RecursionError):  # also of texts that are not UTF-8, and of very deep documents
            return None

    @classmethod
    def detect(cls, documents: Sequence[dict[str, Any]]) -> DetectedFormat:
        """Find the paths of all scalars; see `Format.detect`."""
        values: dict[str, list[Scalar]] = {}
        records: Counter[str] = Counter()
        for document in documents:
            paths = set()
            for path, value in _scalars(document, "", MAX_DEPTH):
                if path in values or len(values) < MAX_PATHS:
                    values.setdefault(path, []).append(value)
                    paths.add(path)
            records.update(paths)
        fields = [SampledField(path, found, records[path] / len(documents)) for path, found in values.items()]
        unnamed = next(chain.from_iterable(_unnamed(document, MAX_DEPTH) for document in documents), None)
        advice = None if unnamed is None else f"no setting can name the field {unnamed[:MAX_SHOWN]!r}: {RENAME}"
        return DetectedFormat("JSON", {"name": "json"}, fields, advice=advice)


def _is_malformed(value: bytes) -> bool:
    """Return whether a value is not JSON. A typed decoder may refuse its type before it has read all of it."""
    try:
        _decode_any(value)
    except msgspec.ValidationError:  # of a number that is out of range
        return False
    except msgspec.DecodeError:
        return True
    return False


def _scalars(node: Any, path: str, depth: int) -> Iterator[tuple[str, Scalar]]:
    """Yield the path and value of every scalar in a JSON document, except those that no path of settings can name."""
    if isinstance(node, dict) and depth:
        for name, child in node.items():
            if NAME.fullmatch(name):
                yield from _scalars(child, f"{path}.{name}" if path else name, depth - 1)
    elif isinstance(node, list) and depth and path:
        for child in node[:MAX_ELEMENTS]:
            yield from _scalars(child, f"{path}[]", depth - 1)
    elif isinstance(node, str | int | float):
        yield path, node


def _unnamed(node: Any, depth: int) -> Iterator[str]:
    """Yield the names of fields in a JSON document that no path of settings can have."""
    if isinstance(node, dict) and depth:
        for name, child in node.items():
            if NAME.fullmatch(name):
                yield from _unnamed(child, depth - 1)
            else:
                yield name
    elif isinstance(node, list) and depth:
        for child in node[:MAX_ELEMENTS]:
            yield from _unnamed(child, depth - 1)


def _leaves(fields: FieldSettings, paths: Mapping[str, Path]) -> dict[Path, Any]:
    """Return the types of the fields by path. A field may be null if it is nothing but values that may be missing."""
    settings = {name: value for name, (value, _) in value_fields(fields).items()}
    leaves: dict[Path, Any] = {}
    required = set[Path]()
    for name, path in paths.items():
        value = settings.get(name)
        leaf = _KEY if name.startswith("key") or (value is not None and value.kind == "text") else _NUMBER
        leaves[path] = leaves[path] | leaf if path in leaves else leaf
        if value is None or value.missing == "invalid":
            required.add(path)
    return {path: leaf if path in required else leaf | None for path, leaf in leaves.items()}


def _find(document: Any, path: Path) -> Any:
    """Return the element at a path, or None if there is none."""
    for name in path:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document
