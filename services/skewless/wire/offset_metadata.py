"""Encodes and decodes the metadata of a committed offset: checkpoint of a step, state schema, and ids of topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from skewless.wire.state_schema import AnySchema, Engine, StateSchema, encode_schema

_SEPARATOR = "\n"
"""Separates checkpoint and schema. Checkpoints do not contain it."""
_DIGITS = " \t\n\r"
_ID_BITS = 32
_ID_CHARACTERS = _ID_BITS // 2
MAX_CHARACTERS = 4_096
"""Kafka's default limit of an offset's metadata (`offset.metadata.max.bytes`)."""


class OffsetMetadata(NamedTuple):
    """Metadata of a committed offset."""

    checkpoint: str | None
    """Checkpoint of the step; None without a commit."""
    state_schema: AnySchema | None
    """None without a commit, or if another version wrote it."""
    topic_id: int | None = None
    """First 32 bits of the id of the topic; None if unknown."""
    changelog_id: int | None = None
    """First 32 bits of the id of the changelog with the state of results; None if unknown, or without one."""


def encode_offset_metadata(
    checkpoint: str, schema: AnySchema | None, topic_id: int | None = None, changelog_id: int | None = None
) -> str:
    """Return the metadata of an offset.

    It is without the ids of topics, and without the meanings of results (`StateSchema.results`), next to a checkpoint
    that leaves no room. The id of a changelog is written only with that of the topic.
    """
    if schema is None:
        return checkpoint
    schema_text = encode_schema(schema)
    room = MAX_CHARACTERS - len(checkpoint) - len(_SEPARATOR)
    for known_id in (topic_id, changelog_id):
        if known_id is None or len(schema_text) + _ID_CHARACTERS > room:
            break
        schema_text += _white_space(known_id)
    if isinstance(schema, StateSchema):
        meanings = "".join(map(_white_space, schema.results))
        if len(meanings) + len(schema_text) <= room:
            schema_text = meanings + schema_text
    return f"{checkpoint}{_SEPARATOR}{schema_text}"


def _white_space(number: int) -> str:
    """Return an id, or the meaning of a result, as white space after or before the JSON of the schema.

    Version 0.2.0 skips it. Any other addition would make that version refuse the checkpoint, and processes of both
    versions have the same consumer group while the replicas of a stage are replaced.
    """
    return "".join(_DIGITS[number >> shift & 3] for shift in range(_ID_BITS - 2, -1, -2))


def _ids(schema_text: str) -> Iterator[int | None]:
    """Yield the ids of the topic and of the changelog. Version 0.3.0 knows no topic if there are two ids."""
    digits = schema_text[len(schema_text.rstrip(_DIGITS)) :]
    for start in (0, _ID_CHARACTERS):
        is_known = len(digits) in (_ID_CHARACTERS, 2 * _ID_CHARACTERS) and start < len(digits)
        yield _id(digits[start : start + _ID_CHARACTERS]) if is_known else None


def _meanings(schema_text: str) -> tuple[int, ...]:
    """Return the meanings of results, which precede the JSON."""
    length = len(schema_text) - len(schema_text.lstrip(_DIGITS))
    return tuple(_id(schema_text[start : start + _ID_CHARACTERS]) for start in range(0, length, _ID_CHARACTERS))


def _id(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number << 2 | _DIGITS.index(digit)
    return number


def decode_offset_metadata(metadata: str | None) -> OffsetMetadata:
    """Decode the metadata of an offset. A schema of another version becomes None."""
    checkpoint, _, schema_text = (metadata or "").partition(_SEPARATOR)
    try:
        schema = msgspec.json.decode(schema_text, type=AnySchema)
    except msgspec.DecodeError:
        return OffsetMetadata(checkpoint or None, None)
    topic_id, changelog_id = _ids(schema_text)
    if isinstance(schema, StateSchema):
        schema = msgspec.structs.replace(schema, results=_meanings(schema_text))
    return OffsetMetadata(checkpoint or None, schema, topic_id=topic_id, changelog_id=changelog_id)


def engine_of(metadata: str | None) -> Engine | None:
    """Return what ran the pipeline when the offset was committed; None if its metadata does not name it."""
    schema = decode_offset_metadata(metadata).state_schema
    return schema.engine if isinstance(schema, StateSchema) else None


def split_offset_metadata(metadata: str) -> tuple[str, str]:
    """Return the two texts in the metadata of an offset: the checkpoint, and the state schema with the topic's id."""
    checkpoint, _, schema_text = metadata.partition(_SEPARATOR)
    return checkpoint, schema_text


def join_offset_metadata(checkpoint: str, schema_text: str) -> str:
    """Return the metadata that `split_offset_metadata` has split."""
    return f"{checkpoint}{_SEPARATOR}{schema_text}" if schema_text else checkpoint
