"""Envelope debezium: change events of a table, in any format with nested fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from skewless.parsing.converters import Problems
from skewless.parsing.envelopes.base import Envelope, OpenedRecords
from skewless.parsing.field_settings import FieldRef, LimitSettings
from skewless.parsing.formats.base import OptionalFields
from skewless.parsing.source_records import SourceRecords, with_values
from skewless.settings_base import InvalidSettingsError
from skewless.wire.record import Headers

Operation = Literal["create", "update", "delete", "snapshot"]
CODES: Mapping[Operation, str] = {"create": "c", "update": "u", "delete": "d", "snapshot": "r"}
"""Values of the field `op` by operation."""
OTHER_CODES = frozenset({"t", "m"})
"""Events without a row: `truncate`, and messages in the log of PostgreSQL."""
BY_ROW: Mapping[str, tuple[Operation, ...]] = {
    "after": ("create", "update", "snapshot"),
    "before": ("update", "delete"),
}
"""Operations whose events have the row."""
PREFIX = "debezium."
OPERATION = "envelope"
"""Path of the field `op` among the fields that rules need."""
NO_OPERATION = "no op field, so it is not a change event of Debezium"
UNKNOWN_OPERATION = "unknown op of Debezium"
_WRAPPED = re.compile(rb'\s*\{\s*"(?:schema|payload)"\s*:')
"""Start of a value that the JsonConverter wrote with schemas. A change event has neither of these fields."""


class _Wrapper(msgspec.Struct, gc=False):
    payload: msgspec.Raw


class _ChangeEvent(msgspec.Struct, gc=False):
    """Fields that each change event has."""

    op: str
    source: dict[str, Any]


_decode_wrapper = msgspec.json.Decoder(_Wrapper).decode
_decode_event = msgspec.json.Decoder(_ChangeEvent).decode


class Debezium(Envelope):
    """Change events of Debezium: the fields of a record are the columns of the row.

    Other fields of the event have the prefix `debezium.`, as in `debezium.source.ts_ms`. JSON may have the wrapper of
    `schema` and `payload`. Tombstones, truncations, and operations that do not count are filtered.
    """

    name: Literal["debezium"] = "debezium"
    row: Literal["after", "before"] = Field(
        "after", description="Which row is read: the one after the change, or the one before it."
    )
    operations: tuple[Operation, ...] | None = Field(
        None,
        min_length=1,
        description="Changes that count: create, update and snapshot have the row after, update and delete the row "
        "before. Default: all that have the row.",
    )

    title: ClassVar[str] = "change events of Debezium"
    event_time: ClassVar[str] = f"{PREFIX}source.ts_ms"
    needs_paths: ClassVar[bool] = True

    @model_validator(mode="after")
    def _have_the_row(self) -> Self:
        if without := [operation for operation in self._operations if operation not in BY_ROW[self.row]]:
            raise InvalidSettingsError(
                f"operations: {', '.join(without)} has no row {self.row} the change; remove it, or set row"
            )
        return self

    @property
    def _operations(self) -> tuple[Operation, ...]:
        return BY_ROW[self.row] if self.operations is None else self.operations

    def locate(self, reference: FieldRef) -> FieldRef:
        """Return the path in the event: that in the row, or without the prefix."""
        text = str(reference)
        return text.removeprefix(PREFIX) if text.startswith(PREFIX) else f"{self.row}.{text}"

    def name_of(self, located: FieldRef) -> FieldRef | None:
        """Return the path in the row, or with the prefix; None for the other row."""
        root, _, path = str(located).partition(".")
        if root in BY_ROW:
            return path if root == self.row and path else None
        return f"{PREFIX}{located}"

    @property
    def rule_fields(self) -> Mapping[str, FieldRef]:
        """The operation."""
        return {OPERATION: "op"}

    def open(self, records: SourceRecords, limits: LimitSettings, headers: Sequence[str]) -> OpenedRecords:  # noqa: ARG002 - see the base class
        """Remove the wrapper of `schema` and `payload`, and skip tombstones."""
        values = [_unwrapped(value, limits.record_bytes) for value in records.values]
        tombstones = [row for row, value in enumerate(values) if value is None] if None in values else []
        return OpenedRecords(with_values(records, values), tombstones)

    def meets(self, found: OptionalFields) -> tuple[NDArray[np.bool_], Problems]:
        """Return whether the operation of each record counts. A record with an unknown one is invalid."""
        column = found.columns[OPERATION]
        counted = {CODES[operation] for operation in self._operations}
        known = {*CODES.values(), *OTHER_CODES}
        problems = {
            row: NO_OPERATION if code is None else UNKNOWN_OPERATION
            for row, code in zip(found.rows, column, strict=True)
            if not isinstance(code, str) or code not in known
        }
        counts = (isinstance(code, str) and code in counted for code in column)
        return np.fromiter(counts, dtype=np.bool_, count=len(column)), problems

    def sample_fields(self) -> Sequence[tuple[FieldRef, Any]]:
        """Return the operation of an event that counts."""
        return [("op", CODES[self._operations[0]])]

    @classmethod
    def recognizes(cls, value: bytes, headers: Headers) -> bool:  # noqa: ARG003 - see the base class
        """Return whether a value is a change event in JSON."""
        try:
            event = _decode_event(_unwrapped(value, len(value)) or b"")
        except (ValueError, RecursionError):
            return False
        return event.op in CODES.values() or event.op in OTHER_CODES


def _unwrapped(value: bytes | None, limit: int) -> bytes | None:
    """Return the payload of a value with a wrapper; the value itself if it has none, or is invalid."""
    if value is None or _WRAPPED.match(value) is None or len(value) > limit:
        return value
    try:
        payload = bytes(_decode_wrapper(value).payload)
    except (ValueError, RecursionError):
        return value
    return None if payload == b"null" else payload
