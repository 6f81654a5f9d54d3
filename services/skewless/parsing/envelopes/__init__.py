"""Envelopes around the data of records: `splitter.envelope`."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Discriminator, Tag

from skewless.parsing.envelopes.base import Envelope, OpenedRecords
from skewless.parsing.envelopes.cloudevents import CloudEvents
from skewless.parsing.envelopes.debezium import Debezium

__all__ = ["ENVELOPES", "Envelope", "EnvelopeChoice", "OpenedRecords"]

ENVELOPES: dict[str, type[Envelope]] = {"debezium": Debezium, "cloudevents": CloudEvents}


def _as_mapping(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _tag_of(value: Any) -> str | None:
    """Return the tag of the class that reads the settings of an envelope; None if there is no such envelope."""
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return name if isinstance(name, str) and name in ENVELOPES else None


if TYPE_CHECKING:
    _AnyEnvelope = Envelope
else:
    _AnyEnvelope = reduce(or_, [Annotated[envelope, Tag(name)] for name, envelope in ENVELOPES.items()])
EnvelopeChoice = Annotated[
    _AnyEnvelope,
    Discriminator(
        _tag_of,
        custom_error_type="envelope",
        custom_error_message=f"should be {' or '.join(ENVELOPES)}, or a mapping with this name and settings",
    ),
    BeforeValidator(_as_mapping, json_schema_input_type=str | _AnyEnvelope),
]
