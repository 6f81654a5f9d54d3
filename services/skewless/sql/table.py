"""The table of results: its columns, derived from the aggregates of a pipeline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import pyarrow as pa

from skewless.algorithms.aggregates import ResultField

Kind = Literal["time", "id", "text", "integer", "decimal", "double", "boolean", "json"]
"""Kind of the values of a column. Each dialect has a type for it."""

DIGITS = 38
"""Digits of a decimal number, before and after the point together."""

REFUSED_SUFFIX = "_refused"
NAME = r"^[a-z][a-z0-9_]{0,62}$"
"""Pattern of the names of tables and columns. PostgreSQL cuts longer names off."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    name: str
    kind: Kind
    decimals: int = 0
    """Decimal places, of kind `decimal`."""
    nullable: bool = False
    """Whether a row may have no value."""


@dataclass(frozen=True, slots=True)
class ResultTable:
    """The table: a row for each window and key."""

    name: str
    results: tuple[Column, ...]
    """One column for each result."""

    @property
    def columns(self) -> Sequence[Column]:
        """All columns, in the order of their values in a row."""
        return (*KEY_COLUMNS, *self.results, REVISION)

    @property
    def refused(self) -> str:
        """Name of the table of refused rows."""
        return f"{self.name}{REFUSED_SUFFIX}"


KEY_COLUMNS = (
    Column("window_start", "time"),
    Column("key_id", "id"),
    Column("window_end", "time"),
    Column("key", "text"),
)
REVISION = Column("revision", "integer")


def result_table(name: str, results: Iterable[ResultField]) -> ResultTable:
    """Return the table of results."""
    return ResultTable(name, tuple(map(_result_column, results)))


def _result_column(result: ResultField) -> Column:
    kind = _kind(result)
    decimals = result.value.decimals if kind == "decimal" else 0
    return Column(result.name, kind, decimals, nullable=result.can_be_null)


def _kind(result: ResultField) -> Kind:
    # An integer that would be a decimal if the values had decimal places: a column of decimals can hold both.
    with_decimals = result.aggregate.result_type(1)
    if pa.types.is_list(with_decimals):
        return "json"
    return "decimal" if pa.types.is_decimal(with_decimals) else _KINDS[result.result_type]


_KINDS: dict[pa.DataType, Kind] = {
    pa.int64(): "integer",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "text",
}
"""Kinds of results that are neither decimals nor lists."""


def key_id(key: str) -> bytes:
    """Return 16 bytes that identify a key. A key may be longer than what an index of a database takes."""
    return blake2b(key.encode(), digest_size=16).digest()
