"""The table of results: its columns, derived from the aggregates of a pipeline. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal, NamedTuple

import pyarrow as pa

from skewless.algorithms.aggregates import BinaryColumn, ResultField

Kind = Literal["time", "id", "text", "integer", "decimal", "double", "boolean", "json"]
"""Kind of the values of a column. Each dialect has a type for it."""

Merge = Literal["sum", "min", "max"]
"""How two partial results become one."""

DIGITS = 38
"""Digits of a decimal number, before and after the point together."""

OFFSET_KEY = ("pipeline", "stage", "topic", "partition")
OFFSET_COLUMNS = (
    *OFFSET_KEY,
    "cluster_id",
    "next_offset",
    "checkpoint",
    "state_schema",
    "leader_epoch",
    "table_name",
    "updated_at",
)
"""Columns of the table of offsets, and those of its primary key, in the order of the values of a row."""

REFUSED_COLUMNS = ("window_ms", "key_bytes", "reason", "record", "topic", "partition", "offset", "refused_at")
"""Columns of a table of refused rows, in the order of the values of a row."""

REFUSED_SUFFIX = "_refused"
VIEW_SUFFIX = "_results"
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
    merge: Merge | None = None
    """How a value is merged into that of a stored row; None: it replaces it."""


class ViewColumn(NamedTuple):
    """A column of the view of results."""

    name: str
    column: str
    """Column of the table: the result, or its dividend."""
    divisor: str | None
    """Column of the table by which it is divided."""


@dataclass(frozen=True, slots=True)
class ResultTable:
    """The table: a row for each window and key."""

    name: str
    results: tuple[Column, ...]
    """One column for each result, or for each part of one."""
    view: tuple[ViewColumn, ...] = ()
    """Columns of the view that shows the results of a table of parts; empty if the table has the results."""
    key_parts: tuple[Column, ...] = ()
    """One column for each part of a composite key."""
    ranked: bool = False
    """Whether a row is identified by window and rank. Its key may change."""

    @property
    def columns(self) -> Sequence[Column]:
        """All columns, in the order of their values in a row."""
        return (*KEY_COLUMNS, *self.contents, REVISION)

    @property
    def contents(self) -> Sequence[Column]:
        """Columns that depend on the settings of the pipeline: parts of the key, then results."""
        return (*self.key_parts, *self.results)

    @property
    def setting(self) -> str:
        """The setting that names the table."""
        return "sink.top_table" if self.ranked else "sink.table"

    @property
    def refused(self) -> str:
        """Name of the table of refused rows."""
        return f"{self.name}{REFUSED_SUFFIX}"

    @property
    def view_name(self) -> str:
        """Name of the view."""
        return f"{self.name}{VIEW_SUFFIX}"

    @property
    def own_names(self) -> set[str]:
        """Names that no other table may have: its own, those that `statements` derives, and PostgreSQL's `_pkey`."""
        names = {self.name, self.refused, f"{self.name}_key", f"{self.name}_pkey"}
        return names | {self.view_name} if self.adds else names

    @property
    def adds(self) -> bool:
        """Whether a row is merged into the stored one. Otherwise it replaces it."""
        return bool(self.view)


WINDOW_END = Column("window_end", "time")
KEY = Column("key", "text")
KEY_COLUMNS = (
    Column("window_start", "time"),
    Column("key_id", "id"),
    WINDOW_END,
    KEY,
)
REVISION = Column("revision", "integer")
RANK = Column("rank", "integer")


def result_table(name: str, results: Iterable[ResultField], key_parts: Iterable[str] = ()) -> ResultTable:
    """Return the table of results. `key_parts` are the names of the parts of a composite key."""
    return ResultTable(name, tuple(map(_result_column, results)), key_parts=_part_columns(key_parts))


def top_table(name: str, results: Iterable[ResultField], key_parts: Iterable[str] = ()) -> ResultTable:
    """Return the table of ranks."""
    return ResultTable(name, (RANK, *_part_columns(key_parts), *map(_result_column, results)), ranked=True)


def added_table(name: str, parts: Mapping[str, tuple[ResultField, ...]], key_parts: Iterable[str] = ()) -> ResultTable:
    """Return the table to which partial results are added, and its view of the results.

    `parts` has the fields from which each result is computed, by its name.
    """
    columns = {part.name: _added_column(part) for fields in parts.values() for part in fields}
    key_columns = _part_columns(key_parts)
    view = [ViewColumn(column.name, column.name, None) for column in key_columns]
    view += [
        ViewColumn(result, fields[0].name, fields[1].name if len(fields) > 1 else None)
        for result, fields in parts.items()
    ]
    return ResultTable(name, tuple(columns.values()), tuple(view), key_columns)


def _part_columns(key_parts: Iterable[str]) -> tuple[Column, ...]:
    return tuple(Column(name, "text") for name in key_parts)


def _added_column(part: ResultField) -> Column:
    partial = part.aggregate.columns[0]
    if isinstance(partial, BinaryColumn):
        raise TypeError(f"a database cannot merge {partial.name}")
    return replace(_result_column(part), merge=partial.merge)


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
