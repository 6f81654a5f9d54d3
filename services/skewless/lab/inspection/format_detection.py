"""Detects the format of records from a sample of their values. Each format knows how to detect itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from skewless.parsing.envelopes import ENVELOPES, Envelope
from skewless.parsing.formats import all_formats
from skewless.parsing.formats.base import DetectedFormat, Format
from skewless.wire.record import Headers

MIN_SHARE = 0.9
"""Share of the values that have to be in the wire format of a schema registry, or in an envelope."""
WIRE_PREFIX_BYTES = 5
"""Bytes before the data in the wire format of a schema registry."""
MAX_SCHEMA_IDS = 3
REGISTRY_ADVICE = (
    "write a pipeline file with registry.url and splitter.format: avro or protobuf, as docs/how-to/schema-registry.md "
    "shows; if the records have keys, these can be counted without that (--key 'record key')"
)
"""Advice for records in the wire format of a schema registry."""


def detect(values: Sequence[bytes | None]) -> DetectedFormat:
    """Detect the format of records from their values. Records without a value are ignored."""
    present = [value for value in values if value]
    if not present:
        return DetectedFormat("no values", None)
    formats = all_formats()
    kinds = Counter(_kind(value, formats) for value in present)
    found = _detect(present, formats) or _detect_binary(present)
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
    return replace(found, description=f"{envelope.title}, {found.description}", fields=fields)


def _detect(present: Sequence[bytes], formats: Mapping[str, type[Format]]) -> DetectedFormat | None:
    for format_ in formats.values():
        documents = [document for value in present if (document := format_.decode(value)) is not None]
        share = len(documents) / len(present)
        if documents and share >= format_.min_share and (found := format_.detect(documents)) is not None:
            return replace(found, other_share=1 - share * (1 - found.other_share))
    return None


def _detect_binary(present: Sequence[bytes]) -> DetectedFormat:
    ids = Counter(schema_id for value in present if (schema_id := _schema_id(value)) is not None)
    if ids.total() < MIN_SHARE * len(present):
        return DetectedFormat("binary", None)
    shown = ", ".join(str(schema_id) for schema_id, _ in ids.most_common(MAX_SCHEMA_IDS))
    name = f"Avro or Protobuf with schema id {shown} of a schema registry"
    return DetectedFormat(name, None, advice=REGISTRY_ADVICE)


def _kind(value: bytes, formats: Mapping[str, type[Format]]) -> str:
    """Return what a value is on its own."""
    for name, format_ in formats.items():
        if format_.decode(value) is not None:
            return format_.kind or name
    return "binary" if _schema_id(value) is None else "binary with a schema id"


def _schema_id(value: bytes) -> int | None:
    """Return the schema id of a value in the wire format of a schema registry: a zero byte, then four of the id."""
    return (int.from_bytes(value[1:5], "big") or None) if value[0] == 0 and len(value) > WIRE_PREFIX_BYTES else None
