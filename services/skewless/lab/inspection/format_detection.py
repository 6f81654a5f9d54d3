"""Detects the format of records from a sample of their values. Each format knows how to detect itself."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from skewless.lab.inspection.registered_records import id_of
from skewless.parsing.envelopes import ENVELOPES, Envelope
from skewless.parsing.formats import all_formats
from skewless.parsing.formats.base import DetectedFormat, Format
from skewless.wire.record import Headers

MIN_SHARE = 0.9
"""Share of the values that have to be in an envelope, or to be JSON of one of these kinds."""
ARRAYS = "JSON arrays"
TEXTS = "JSON objects in JSON strings"
LINES = "several JSON objects per record"
MARKED = "JSON objects after a byte order mark"
FORMATS = {ARRAYS: "json", TEXTS: "json", LINES: "text", MARKED: "text"}
"""Format of `splitter` that gives a function of `splitter.python` these values."""


def detect(values: Sequence[bytes | None]) -> DetectedFormat:
    """Detect the format of records from their values. Records without a value are ignored."""
    present = [value for value in values if value]
    if not present:
        return DetectedFormat("no values", None)
    formats = all_formats()
    kinds = Counter(_kind(value, formats) for value in present)
    found = _other_json(present) or _detect(present, formats) or DetectedFormat("binary", None)
    if len(kinds) == 1:
        return found
    return replace(found, kinds={kind: count / len(present) for kind, count in kinds.most_common()})


def detect_envelope(records: Iterable[tuple[bytes | None, Headers]]) -> Envelope | None:
    """Return the envelope that nearly all records have which have a value; None if they have none."""
    present = [(value, headers) for value, headers in records if value]
    for envelope in ENVELOPES.values():
        if present and sum(envelope.recognizes(*record) for record in present) >= MIN_SHARE * len(present):
            return envelope.model_validate({})
    return None


def detect_in(envelope: Envelope, values: Sequence[bytes | None]) -> DetectedFormat:
    """Detect the format of the values of opened records, with its fields as settings name them."""
    found = detect(values)
    named = [(envelope.name_of(field.reference), field) for field in found.fields]
    fields = [replace(field, reference=name) for name, field in named if name is not None]
    # Advice names a function of splitter.python, which gets no records of envelopes.
    return replace(found, description=f"{envelope.title}, {found.description}", fields=fields, advice=None)


def _detect(present: Sequence[bytes], formats: Mapping[str, type[Format]]) -> DetectedFormat | None:
    for format_ in formats.values():
        documents = [document for value in present if (document := format_.decode(value)) is not None]
        share = len(documents) / len(present)
        if documents and share >= format_.min_share and (found := format_.detect(documents)) is not None:
            return replace(found, other_share=1 - share * (1 - found.other_share))
    return None


def _other_json(present: Sequence[bytes]) -> DetectedFormat | None:
    """Return the kind of JSON if it is not one object per record. As lines, it would look like columns."""
    ((kind, count),) = Counter(map(_json_kind, present)).most_common(1)
    if kind is None or count < MIN_SHARE * len(present):
        return None
    advice = (
        f"a pipeline reads one JSON object per record: with splitter.format {FORMATS[kind]}, a function in "
        "splitter.python can return the objects (docs/how-to/python.md)"
    )
    return DetectedFormat(kind, None, advice=advice)


def _json_kind(value: bytes) -> str | None:
    first = value[:1]
    if first == b"[":
        return ARRAYS if isinstance(_decoded(value), list) else None
    if first == b'"':
        return TEXTS if isinstance(text := _decoded(value), str) and _is_object(text.encode()) else None
    if value.startswith(codecs.BOM_UTF8):
        return MARKED if _is_object(value.removeprefix(codecs.BOM_UTF8)) else None
    lines = value.splitlines()
    return LINES if len(lines) > 1 and all(map(_is_object, lines)) else None


def _is_object(value: bytes) -> bool:
    return isinstance(_decoded(value), dict)


def _decoded(value: bytes) -> object:
    """Return what JSON contains; None if the value is none."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return None


def _kind(value: bytes, formats: Mapping[str, type[Format]]) -> str:
    """Return what a value is on its own."""
    for name, format_ in formats.items():
        if format_.decode(value) is not None:
            return format_.kind or name
    return "binary" if id_of(value) is None else "binary with a schema id"
