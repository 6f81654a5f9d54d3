"""Converts records of topic `aggregates` to rows of the table. Pure."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec
import numpy as np

from skewless.errors import BadRecordError
from skewless.sql.table import DIGITS, Column, Kind, ResultTable, key_id
from skewless.wire.tuples import Int64

Row = tuple[Any, ...]
"""Values of a row, in the order of `ResultTable.columns`. Times are text in UTC: 2026-01-31T23:00:00.000."""


class RowId(NamedTuple):
    """Identity of a row."""

    window_start: str
    key_id: bytes


class RefusedRow(NamedTuple):
    """A record that the table cannot hold."""

    window: int | None
    """Start of its window in ms; None if it is unknown."""
    key: bytes
    reason: str
    record: bytes
    topic: str
    partition: int
    offset: int


def time_text(milliseconds: int) -> str:
    """Return a time in ms since the epoch as text. Years before 1 and after 9999 have a sign or five digits."""
    return str(np.datetime64(milliseconds, "ms"))


@functools.lru_cache(maxsize=4096)
def time_ms(text: str) -> int:
    """Return the time of a text of `time_text` in ms since the epoch."""
    return int(np.datetime64(text, "ms").astype(np.int64))


class RowDecoder:
    """Decodes the records of one table."""

    def __init__(self, table: ResultTable) -> None:
        fields: list[Any] = [("key", str), ("window_start", Int64), ("window_end", Int64), ("revision", int)]
        # Results from before an aggregate was added lack its field.
        later = () if table.ranked else {column.name for column in table.results}
        for column in table.contents:
            default = (msgspec.Raw(b"null") if column.kind == "json" else None,) if column.name in later else ()
            fields.append((column.name, _field_type(column, is_later=bool(default)), *default))
        record_type: Any = msgspec.defstruct("Record", fields, gc=False, kw_only=True)
        self._decode = msgspec.json.Decoder(record_type).decode
        getter = operator.attrgetter(*(column.name for column in (*table.contents, table.columns[-1])))
        self._results: Callable[[Any], tuple[Any, ...]] = getter
        self._identity: Callable[[Any], str] = operator.attrgetter("key")
        if table.ranked:
            self._identity = lambda record: str(record.rank)
        self._converters = [
            (index, converter)
            for index, column in enumerate(table.contents)
            if (converter := _converter(column, is_later=column.name in later)) is not None
        ]

    def __call__(self, value: bytes) -> Row:
        """Return the row of a record. Raises BadRecordError if the record is not one of this table."""
        try:
            record = self._decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRecordError(f"not a record of this table: {error}") from None
        results = self._results(record)
        if self._converters:
            changed = list(results)
            for index, converter in self._converters:
                if changed[index] is not None:
                    changed[index] = converter(changed[index])
            results = tuple(changed)
        start, end = _time_text(record.window_start), _time_text(record.window_end)
        return (start, key_id(self._identity(record)), end, record.key, *results)


_time_text = functools.lru_cache(maxsize=4096)(time_text)


_decode_window = msgspec.json.Decoder(Int64).decode


def split_key(key: bytes) -> tuple[int, bytes]:
    """Return the window (its start, ms) and the key of a record key. Raises ValueError for a foreign record."""
    start, _, text = key.partition(b"/")
    window = _decode_window(start)
    if key != b"%d/%s" % (window, text):  # JSON allows white space and -0
        raise ValueError("not the record key of this window")
    return window, text


def row_id(key: bytes) -> RowId:
    """Return the identity of the row of a record key. Raises BadRecordError for a foreign record."""
    try:
        window, text = split_key(key)
        return RowId(_time_text(window), key_id(text.decode()))
    except ValueError:
        raise BadRecordError("its key is not window/key") from None


def _field_type(column: Column, *, is_later: bool) -> Any:
    # A list keeps its text: otherwise its numbers would become doubles.
    field_type = _FIELD_TYPES.get(column.kind, msgspec.Raw)
    return field_type | None if (column.nullable or is_later) and column.kind != "json" else field_type


_FIELD_TYPES: dict[Kind, Any] = {
    "integer": int,
    "decimal": int | Decimal,
    "double": float,
    "boolean": bool,
    "text": str,
}
"""Python type of each kind of a result but `json`."""


def _converter(column: Column, *, is_later: bool) -> Callable[[Any], Any] | None:
    match column.kind:
        case "decimal":
            return _whole if not column.decimals else functools.partial(_exact, decimals=column.decimals)
        case "json":
            return functools.partial(_list_text, nullable=column.nullable or is_later)
    return None


_CONTEXT = Context(prec=400)
"""More digits than any number that a record may have."""


_LIMIT = 10**DIGITS


def _whole(number: int | Decimal) -> int | Decimal:
    """Return a number without decimal places. Raises BadRecordError as `_exact`."""
    # Most numbers are integers in JSON, and for these no Decimal is needed.
    if isinstance(number, int) and -_LIMIT < number < _LIMIT:
        return number
    return _exact(Decimal(number), 0)


def _exact(number: int | Decimal, decimals: int) -> Decimal:
    """Return the number with these decimal places. Raises BadRecordError if it has more, or too many digits."""
    try:
        exact = Decimal(number).quantize(Decimal(1).scaleb(-decimals), context=_CONTEXT)
    except InvalidOperation:
        raise BadRecordError(f"a number has more than {DIGITS} digits") from None
    if exact != number:
        raise BadRecordError(f"a number has more decimal places than the column ({decimals})")
    if exact.adjusted() + decimals >= DIGITS:  # the exponent of the first digit
        raise BadRecordError(f"a number has more than {DIGITS} digits")
    return exact


def _list_text(value: msgspec.Raw, *, nullable: bool) -> str | None:
    """Return the JSON of a list. Raises BadRecordError for other JSON."""
    content = bytes(value)
    if nullable and content == b"null":
        return None
    if not content.startswith(b"["):
        raise BadRecordError("not a record of this table: a result should be a list")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BadRecordError(f"not a record of this table: {error}") from None
