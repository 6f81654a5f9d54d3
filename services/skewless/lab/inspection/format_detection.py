"""Detects the format of records from a sample of their values: JSON, delimited columns, text or binary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from skewless.parsing.field_settings import FieldRef

MIN_SHARE = 0.9
"""Share of the values that have to be of a format."""
MIN_JSON_SHARE = 0.5
"""The same for JSON. It is lower, because nothing else is a JSON object: the other values are broken records."""
MAX_PATHS = 200
MAX_DEPTH = 5
MAX_ELEMENTS = 20
"""Limits of the fields that are looked at in a JSON record."""
WIRE_PREFIX_BYTES = 5
"""Bytes before the data in the wire format of a schema registry."""
MAX_SCHEMA_IDS = 3
REGISTRY_ADVICE = (
    "write JSON to a topic for the pipeline, for example with the JsonConverter of Kafka Connect, with ksqlDB or with "
    "Flink SQL; if the records have keys, these can be counted without that (--key 'record key')"
)
"""Advice for records in the wire format of a schema registry."""
DELIMITERS = ("\t", ";", ",", "|", " ")
"""Delimiters in the order of preference among those that fit equally well."""
_FRACTION = re.compile(r"(?<=:\d\d),\d{3}(?!\d)")
"""Milliseconds of a time of day. Their comma does not separate columns."""
_NAME = re.compile(r"[^.\[\]]+")
Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class SampledField:
    """A field of the records, with its values in the sample."""

    reference: FieldRef
    values: list[Scalar]
    share: float
    """Share of the sampled records that have the field."""


@dataclass(frozen=True, slots=True)
class DetectedFormat:
    """Format of the records of a topic."""

    description: str
    settings: dict[str, Any] | None
    """Value of `splitter.format`; None if no format can read the records."""
    fields: list[SampledField] = field(default_factory=list)
    other_share: float = 0.0
    """Share of the sampled values that are not of this format."""
    kinds: dict[str, float] = field(default_factory=dict)
    """Shares of the sampled values that are JSON, text, or binary, if they are not all of one kind."""
    advice: str | None = None
    """How a pipeline can use the topic although no format can read its records."""


def detect(values: Sequence[bytes | None]) -> DetectedFormat:
    """Detect the format of records from their values. Records without a value are ignored."""
    present = [value for value in values if value]
    if not present:
        return DetectedFormat("no values", None)
    counts = Counter(map(_kind, present))
    found = _detect(present)
    if len(counts) == 1:
        return found
    return replace(found, kinds={kind: count / len(present) for kind, count in counts.most_common()})


def _detect(present: Sequence[bytes]) -> DetectedFormat:
    objects = list(_objects(present))
    if len(objects) >= MIN_JSON_SHARE * len(present):
        other_share = 1 - len(objects) / len(present)
        return DetectedFormat("JSON", {"name": "json"}, list(_json_fields(objects)), other_share)
    texts = list(_texts(present))
    if len(texts) < MIN_SHARE * len(present):
        ids = Counter(schema_id for value in present if (schema_id := _schema_id(value)) is not None)
        if ids.total() < MIN_SHARE * len(present):
            return DetectedFormat("binary", None)
        shown = ", ".join(str(schema_id) for schema_id, _ in ids.most_common(MAX_SCHEMA_IDS))
        name = f"Avro or Protobuf with schema id {shown} of a schema registry"
        return DetectedFormat(f"{name}, which cannot be read yet", None, advice=REGISTRY_ADVICE)
    return _detect_columns(texts) or DetectedFormat("text", {"name": "text"})


def _kind(value: bytes) -> str:
    """Return what a value is on its own. Text is whatever a column of a line or a pattern can be read from."""
    if next(_objects([value]), None) is not None:
        return "JSON"
    if next(_texts([value]), None) is not None:
        return "text"
    return "binary" if _schema_id(value) is None else "binary with a schema id"


def _schema_id(value: bytes) -> int | None:
    """Return the schema id of a value in the wire format of a schema registry: a zero byte, then four of the id."""
    return (int.from_bytes(value[1:5], "big") or None) if value[0] == 0 and len(value) > WIRE_PREFIX_BYTES else None


def _texts(values: Sequence[bytes]) -> Iterator[str]:
    for value in values:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            yield text.rstrip("\r\n")


def _objects(values: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for value in values:
        try:
            yield decode(value)
        except (ValueError, RecursionError):  # also of texts that are not UTF-8, and of very deep documents
            continue


def _json_fields(objects: Sequence[dict[str, Any]]) -> Iterator[SampledField]:
    values: dict[str, list[Scalar]] = {}
    records: Counter[str] = Counter()
    for document in objects:
        paths = set()
        for path, value in _scalars(document, "", MAX_DEPTH):
            if path in values or len(values) < MAX_PATHS:
                values.setdefault(path, []).append(value)
                paths.add(path)
        records.update(paths)
    for path, scalars in values.items():
        yield SampledField(path, scalars, records[path] / len(objects))


def _scalars(node: Any, path: str, depth: int) -> Iterator[tuple[str, Scalar]]:
    """Yield the path and value of every scalar in a JSON document, except those that no path of settings can name."""
    if isinstance(node, dict) and depth:
        for name, child in node.items():
            if _NAME.fullmatch(name):
                yield from _scalars(child, f"{path}.{name}" if path else name, depth - 1)
    elif isinstance(node, list) and depth and path:
        for child in node[:MAX_ELEMENTS]:
            yield from _scalars(child, f"{path}[]", depth - 1)
    elif isinstance(node, str | int | float):
        yield path, node


def _detect_columns(lines: Sequence[str]) -> DetectedFormat | None:
    """Return the delimited format whose number of columns is the same in most lines; None if there is none."""
    best, best_share = None, MIN_SHARE
    for delimiter in DELIMITERS:
        separators = Counter(_FRACTION.sub("", line).count(delimiter) for line in lines).most_common(1)[0][0]
        if not separators:
            continue
        width, lines_with_it = Counter(line.count(delimiter) + 1 for line in lines).most_common(1)[0]
        share = lines_with_it / len(lines)
        if share > best_share or (best is None and share >= MIN_SHARE):
            best, best_share = (delimiter, width), share
    if best is None:
        return None
    delimiter, width = best
    rows = [columns for line in lines if len(columns := line.split(delimiter)) == width]
    settings: dict[str, Any] = {"name": "tsv"} if delimiter == "\t" else {"name": "csv", "delimiter": delimiter}
    if settings["name"] == "csv" and any(cell.startswith('"') for row in rows for cell in row):
        settings["quoting"] = True
    fields = [SampledField(column, [row[column] for row in rows], 1.0) for column in range(width)]
    name = {"\t": "tab", " ": "space"}.get(delimiter, f'"{delimiter}"')
    return DetectedFormat(f"{width} columns, delimiter {name}", settings, fields, 1 - best_share)
