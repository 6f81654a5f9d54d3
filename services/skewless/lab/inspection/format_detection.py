"""Detects the format of records from a sample of their values. Each format knows how to detect itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from skewless.lab.inspection.registered_records import id_of
from skewless.parsing.envelopes import ENVELOPES, Envelope
from skewless.parsing.formats import all_formats
from skewless.parsing.formats.base import DetectedFormat, Format
from skewless.wire.record import Headers

MIN_SHARE = 0.9
"""Share of the values that have to be in an envelope."""


def detect(values: Sequence[bytes | None]) -> DetectedFormat:
    """Detect the format of records from their values. Records without a value are ignored."""
    present = [value for value in values if value]
    if not present:
        return DetectedFormat("no values", None)
    formats = all_formats()
    kinds = Counter(_kind(value, formats) for value in present)
    found = _detect(present, formats) or DetectedFormat("binary", None)
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


def _kind(value: bytes, formats: Mapping[str, type[Format]]) -> str:
    """Return what a value is on its own."""
    for name, format_ in formats.items():
        if format_.decode(value) is not None:
            return format_.kind or name
    return "binary" if id_of(value) is None else "binary with a schema id"
