"""Schemas of a registry, and how a record names its schema."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

SchemaId = int | UUID
"""Id of a schema: a number, or a GUID as newer clients write it to headers."""

Indexes = tuple[int, ...]
FIRST: Final[Indexes] = (0,)
"""Indexes of the first message of a schema in Protobuf."""
MAX_INDEXES: Final = 32
"""Maximum depth of the message of a record in its schema."""

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
"""Headers in which newer clients write the schema id of a key and of a value. The payload then has no prefix."""

_NUMBER = struct.Struct(">BI")
_GUID = struct.Struct(">B16s")


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema of a registry, with all schemas that it refers to."""

    type: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: Mapping[str, Schema] = field(default_factory=dict)
    """Schemas that this one refers to, by the name that it uses for them."""

    def all_references(self) -> dict[str, Schema]:
        """Return by name all schemas that this one refers to, also indirectly. Each is after those that it refers to.

        Raises ValueError if two of them have one name.
        """
        found: dict[str, Schema] = {}
        for name, reference in self.each_reference():
            if _content(found.setdefault(name, reference)) != _content(reference):
                raise ValueError(f"two different references have the name {name}")
        return found

    def each_reference(self) -> Iterator[tuple[str, Schema]]:
        """Yield all schemas that this one refers to, also indirectly, with their names. The order is as above."""
        return _each_reference(self, set())


def split_prefix(payload: bytes) -> tuple[SchemaId, int] | None:
    """Return the schema id at the beginning of a payload, and the number of its bytes. None if there is none."""
    if len(payload) >= _NUMBER.size and payload[0] == 0:
        return _NUMBER.unpack_from(payload)[1], _NUMBER.size
    if len(payload) >= _GUID.size and payload[0] == 1:
        return UUID(bytes=_GUID.unpack_from(payload)[1]), _GUID.size
    return None


def split_indexes(content: bytes) -> tuple[Indexes, int] | None:
    """Return the indexes of a message at the beginning of a payload, and the number of their bytes.

    They are integers in zigzag, the first one their number. None if there are none.
    """
    numbers: list[int] = []
    value = shift = 0
    for position, byte in enumerate(content, 1):
        value |= (byte & 127) << shift
        shift += 7
        if byte >= 128:
            if shift > 63:
                return None
            continue
        numbers.append((value >> 1) ^ -(value & 1))
        value = shift = 0
        if not 0 <= numbers[0] <= MAX_INDEXES:
            return None
        if len(numbers) == numbers[0] + 1:
            return tuple(numbers[1:]) or FIRST, position
    return None


def split_message(value: bytes) -> tuple[Indexes, int]:
    """Return the indexes of the message of a value in Protobuf, and the number of the bytes before its payload.

    Raises ValueError if there are none.
    """
    if (head := split_prefix(value)) is None or (found := split_indexes(value[head[1] :])) is None:
        raise ValueError("no message")
    return found[0], head[1] + found[1]


def prefix(schema_id: SchemaId) -> bytes:
    """Return the bytes that name a schema at the beginning of a payload, or in a header."""
    if isinstance(schema_id, UUID):
        return _GUID.pack(1, schema_id.bytes)
    return _NUMBER.pack(0, schema_id)


def _content(schema: Schema) -> tuple[object, ...]:
    """Return what two schemas have in common exactly if they are equal, given that each name is that of one schema."""
    return schema.type, schema.text, schema.references.keys()


def _each_reference(schema: Schema, followed: set[int]) -> Iterator[tuple[str, Schema]]:
    for name, reference in schema.references.items():
        # The number of ways to a schema may grow exponentially with the number of schemas.
        if id(reference) not in followed:
            followed.add(id(reference))
            yield from _each_reference(reference, followed)
        yield name, reference
