"""Encodes and decodes the metadata of a committed offset: the checkpoint of a step and the state schema."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from skewless.wire.state_schema import VERSIONS_OF_0_1, AnySchema, encode_schema

_SEPARATOR = "\n"
"""Separates checkpoint and schema. Checkpoints do not contain it."""


class OffsetMetadata(NamedTuple):
    """Metadata of a committed offset."""

    checkpoint: str | None
    """Checkpoint of the step; None without a commit."""
    shape: AnySchema | None
    """None without a commit, or if another version wrote it."""
    from_0_1: bool = False
    """Whether Skewless 0.1 wrote it."""


def encode_offset_metadata(checkpoint: str, schema: AnySchema | None) -> str:
    """Return the metadata of an offset."""
    return checkpoint if schema is None else f"{checkpoint}{_SEPARATOR}{encode_schema(schema)}"


def decode_offset_metadata(metadata: str | None) -> OffsetMetadata:
    """Decode the metadata of an offset. A schema of another version becomes None."""
    checkpoint, _, schema_text = (metadata or "").partition(_SEPARATOR)
    try:
        schema = msgspec.json.decode(schema_text, type=AnySchema)
    except msgspec.DecodeError:
        return OffsetMetadata(checkpoint or None, None, from_0_1=_version(schema_text) in VERSIONS_OF_0_1)
    return OffsetMetadata(checkpoint or None, schema)


def split_offset_metadata(metadata: str) -> tuple[str, str]:
    """Return the two texts in the metadata of an offset: the checkpoint and the state schema."""
    checkpoint, _, schema_text = metadata.partition(_SEPARATOR)
    return checkpoint, schema_text


def join_offset_metadata(checkpoint: str, schema_text: str) -> str:
    """Return the metadata that `split_offset_metadata` has split."""
    return f"{checkpoint}{_SEPARATOR}{schema_text}" if schema_text else checkpoint


def _version(schema_text: str) -> object:
    """Return the version of a state schema, which is its first item, or None."""
    try:
        items = msgspec.json.decode(schema_text)
    except msgspec.DecodeError:
        return None
    return items[0] if isinstance(items, list) and items else None
