"""Envelope cloudevents: CloudEvents 1.0 as their Kafka protocol binding writes them, in both content modes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal

import msgspec

from skewless.parsing.converters import Problems, text_of
from skewless.parsing.envelopes.base import Envelope, OpenedRecords
from skewless.parsing.field_settings import LimitSettings
from skewless.parsing.line_decoder import EMPTY, too_long
from skewless.parsing.source_records import SourceRecords, with_values
from skewless.wire.record import Headers

PREFIX = "ce_"
"""Prefix of the headers with attributes."""
VERSION_HEADER = "ce_specversion"
CONTENT_TYPE = "content-type"
"""Header with the media type of the value: of the event in structured mode, otherwise of its data."""
VERSION = "1.0"
NO_EVENT = "not a CloudEvent, it has no specversion"
OTHER_VERSION = f"the specversion of the CloudEvent is not {VERSION}"
NOT_JSON = "the CloudEvent is structured, but not in JSON"
MALFORMED = "malformed CloudEvent"
NOT_BASE64 = "data_base64 of the CloudEvent is not Base64"
_STRUCTURED = b"application/cloudevents"
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_scalar = msgspec.json.Decoder().decode


class _InvalidEventError(ValueError):
    """A value is not a valid event. The message is the reason."""


class CloudEvents(Envelope):
    """CloudEvents 1.0 in structured mode (JSON) or binary mode: the value of a record is the data of the event.

    The format reads the data, also that of `data_base64`. The attributes are headers in both modes: `ce_type`,
    `ce_source`, `ce_subject`, `ce_time`, and `content-type` for that of the data.
    """

    name: Literal["cloudevents"] = "cloudevents"

    title: ClassVar[str] = "CloudEvents"
    event_time: ClassVar[str] = f"{PREFIX}time"
    in_headers: ClassVar[bool] = True

    def open(self, records: SourceRecords, limits: LimitSettings, headers: Sequence[str]) -> OpenedRecords:
        """Convert structured events to binary ones, with those of the `headers` that the event has."""
        values, opened = list(records.values), list(records.headers)
        invalid: Problems = {}
        for row, own in enumerate(records.headers):
            found = dict(own)
            media_type = (found.get(CONTENT_TYPE) or b"").lower()
            try:
                if VERSION_HEADER in found and not media_type.startswith(_STRUCTURED):
                    _require_version((found[VERSION_HEADER] or b"").decode(errors="replace"))
                else:
                    event = _structured(values[row], media_type, limits.record_bytes)
                    values[row] = _data(event)
                    others = (header for header in own if header[0] != CONTENT_TYPE)  # that is of the event
                    opened[row] = (*others, *_attributes(event, headers))
            except _InvalidEventError as error:
                invalid[row] = str(error)
        return OpenedRecords(with_values(records, values, opened), invalid=invalid)

    def provides(self, header: str) -> bool:
        """Return whether a header is an attribute of events, or the media type of their data."""
        return header.startswith(PREFIX) or header == CONTENT_TYPE

    def sample_headers(self) -> Headers:
        """Return the attributes that each event has, in binary mode."""
        attributes = {"specversion": VERSION, "id": "skewless", "source": "/skewless", "type": "skewless.smoke-test"}
        return [(f"{PREFIX}{name}", text.encode()) for name, text in attributes.items()]

    @classmethod
    def recognizes(cls, value: bytes, headers: Headers) -> bool:
        """Return whether a record has the headers of binary mode, or a structured event as value."""
        if any(name == VERSION_HEADER for name, _ in headers):
            return True
        try:
            event = _decode(value)
        except (ValueError, RecursionError):
            return False
        return event.keys() >= {"specversion", "id", "source", "type"}


def _require_version(version: Any) -> None:
    if version != VERSION:
        raise _InvalidEventError(OTHER_VERSION)


def _structured(value: bytes | None, media_type: bytes, limit: int) -> Mapping[str, msgspec.Raw]:
    """Return the members of a structured event."""
    if media_type.startswith(_STRUCTURED) and not _is_json(media_type):
        raise _InvalidEventError(NOT_JSON)
    if value is None:
        raise _InvalidEventError(EMPTY)
    if len(value) > limit:
        raise _InvalidEventError(too_long(limit))
    try:
        event = _decode(value)
    except (ValueError, RecursionError):
        raise _InvalidEventError(MALFORMED) from None
    if "specversion" not in event:
        raise _InvalidEventError(NO_EVENT)
    _require_version(_scalar(event, "specversion"))
    return event


def _data(event: Mapping[str, msgspec.Raw]) -> bytes | None:
    """Return the data of an event, as binary mode has it."""
    if "data_base64" in event:
        text = _scalar(event, "data_base64")
        if isinstance(text, str):
            with suppress(ValueError):  # also binascii.Error, and text that is not ASCII
                return base64.b64decode(text, validate=True)
        raise _InvalidEventError(NOT_BASE64)
    data = bytes(event.get("data", b"null"))
    if data == b"null":
        return None
    media_type = _scalar(event, "datacontenttype")
    if data.startswith(b'"') and isinstance(media_type, str) and not _is_json(media_type.encode()):
        return str(_scalar(event, "data")).encode()
    return data


def _attributes(event: Mapping[str, msgspec.Raw], headers: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return those of the headers that are attributes of an event."""
    names = {header: "datacontenttype" if header == CONTENT_TYPE else header.removeprefix(PREFIX) for header in headers}
    found = {header: _scalar(event, name) for header, name in names.items() if header != name}
    return [(header, text_of(scalar).encode()) for header, scalar in found.items() if scalar is not None]


def _scalar(event: Mapping[str, msgspec.Raw], name: str) -> str | int | float | bool | None:
    """Return a member that is a scalar; None if it is absent, null, an object or a list."""
    if name not in event:
        return None
    try:
        found = _decode_scalar(event[name])
    except (ValueError, RecursionError):
        raise _InvalidEventError(MALFORMED) from None
    return found if isinstance(found, str | int | float) else None


def _is_json(media_type: bytes) -> bool:
    """Return whether a media type is JSON, or a type whose suffix says that it is."""
    essence = media_type.split(b";")[0].strip().lower()
    return essence.endswith((b"/json", b"+json"))
