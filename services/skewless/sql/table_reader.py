"""Reads the table of results page by page, as it is at one moment."""

from __future__ import annotations

import contextlib
import functools
import json
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, NamedTuple

import pyarrow as pa

from skewless.algorithms.aggregates import ResultField
from skewless.errors import StoreError
from skewless.sql.database import Database
from skewless.sql.rows import time_text
from skewless.sql.table import DIGITS, KEY, REVISION, Column, ResultTable, key_id
from skewless.times import FIRST_INSTANT, instant_text

PAGE_ROWS = 2000
"""Number of rows that are in memory at once."""

StoredRow = tuple[Any, ...]
"""Start and end of the window in ms, the key, the columns of `ResultTable.contents`, and the revision."""


class StoredOffset(NamedTuple):
    """Progress of the stage that writes the table, in one partition of its input."""

    next_offset: int
    checkpoint: str


class TableSnapshot:
    """A table and the progress that belongs to it. Later transactions are not visible."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._statements = database.statements

    def offsets(self, pipeline: str, stage: str, topic: str) -> dict[int, StoredOffset]:
        """Return the progress of a stage by partition of its topic."""
        rows = self._database.query(self._statements["offsets_select"], (pipeline, stage))
        return {row[1]: StoredOffset(row[2], row[3]) for row in rows if row[0] == topic}

    def refused(self) -> list[tuple[int | None, bytes]]:
        """Return the windows (start in ms, None if unknown) and keys of the refused rows."""
        rows = self._database.query(self._statements["refused_select"])
        return [(window, bytes(key)) for window, key in rows]

    def windows(self) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each window that has rows, in order."""
        statement, start = self._statements["windows_select"], FIRST_INSTANT
        while rows := self._database.query(statement, (time_text(start),)):
            self._require_times(rows)
            yield from rows
            start = rows[-1][0] + 1

    def of_key(self, key: str) -> list[StoredRow]:
        """Return the rows of a key, one for each of its windows, in order."""
        # Which of both has an index depends on the dialect and on the version that created the table.
        rows = self._database.query(self._statements["key_rows_select"], (key_id(key), key))
        self._require_times(rows)
        return rows

    def pages(self, first: int | None = None, last: int | None = None) -> Iterator[list[StoredRow]]:
        """Yield the rows of the windows that start from `first` to `last` (inclusive, ms), in order."""
        for page in self.pages_with_ids(first, last):
            yield [row[1:] for row in page]

    def pages_with_ids(self, first: int | None = None, last: int | None = None) -> Iterator[list[tuple[Any, ...]]]:
        """Yield what `pages` yields. The id of its key precedes each row."""
        statement = self._statements["page_select"]
        start, last_id = time_text(FIRST_INSTANT if first is None else first), b""
        # A page begins after the last row of the previous one, so a database needs neither a cursor nor memory.
        while rows := self._database.query(statement, (start, start, last_id, PAGE_ROWS)):
            self._require_times(row[1:3] for row in rows)
            page = [row for row in rows if last is None or row[1] <= last]
            if page:
                yield page
            if len(page) < PAGE_ROWS:
                return
            last_id, start = rows[-1][0], time_text(rows[-1][1])

    def _require_times(self, rows: Iterable[Sequence[Any]]) -> None:
        """Raise StoreError for bounds of a window that are not times. SQLite stores any text."""
        for row in rows:
            for name, value in zip(("window_start", "window_end"), row[:2], strict=True):
                if not isinstance(value, int):
                    place = f"table {self._statements.table.name} in {self._database.address}"
                    raise _unreadable(place, name, value, "a time")


def _unreadable(place: str, column: str, value: object, needed: str) -> StoreError:
    return StoreError(
        f"{place}: column {column} has the value {reprlib.repr(value)}, it needs {needed}: correct the value, or "
        "delete the row"
    )


@contextlib.contextmanager
def snapshot(database: Database) -> Iterator[TableSnapshot]:
    """Read a connected database in one transaction. Errors of the driver become StoreError or UnreachableError."""
    with database.converted_errors(f"reading table {database.statements.table.name}"):
        database.begin_snapshot()
        try:
            yield TableSnapshot(database)
        finally:
            with contextlib.suppress(*database.errors):
                database.rollback()


class ResultReader:
    """Converts the columns of rows to what results are elsewhere: numbers, texts and lists of Python."""

    def __init__(self, table: ResultTable, results: Sequence[ResultField]) -> None:
        self._table = table
        types: Mapping[str, pa.DataType] = {result.name: result.result_type for result in results}
        contents = [(column, _converter(types.get(column.name, pa.string()))) for column in table.contents]
        self._columns: list[tuple[Column, Callable[[Any], Any]]] = [(KEY, _text), *contents, (REVISION, _integer)]

    def __call__(self, row: StoredRow) -> StoredRow:
        """Return the row with converted values. NULL is None.

        Raises StoreError for a value that is not of its type: SQLite stores any text, PostgreSQL the decimal NaN.
        """
        values = []
        for (column, convert), value in zip(self._columns, row[2:], strict=True):
            try:
                values.append(None if value is None else convert(value))
            except (ArithmeticError, TypeError, ValueError):
                place = f"table {self._table.name}, key {row[2]}, window {instant_text(row[0])}"
                raise _unreadable(place, column.name, value, _needed(column)) from None
        return (*row[:2], *values)


def _needed(column: Column) -> str:
    return f"{column.kind}({DIGITS},{column.decimals})" if column.kind == "decimal" else column.kind


def _converter(result_type: pa.DataType) -> Callable[[Any], Any]:
    """Return the function from a value of any of the drivers to a Python object of this Arrow type."""
    if pa.types.is_list(result_type):
        convert = _converter(result_type.value_type)
        return lambda text: [convert(item) for item in json.loads(text, parse_float=Decimal)]
    if pa.types.is_decimal(result_type):
        return functools.partial(_decimal, step=Decimal(1).scaleb(-result_type.scale))
    return _CONVERTERS[result_type]


_EXACT = Context(prec=DIGITS, traps=[InvalidOperation, Inexact])


def _decimal(value: Any, step: Decimal) -> Decimal:
    """Return a decimal, which must be a multiple of `step` with at most DIGITS digits.

    Raises ArithmeticError, ValueError or TypeError for another value.
    """
    number = Decimal(value)
    if not number.quantize(step, context=_EXACT).is_finite():
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _integer(value: Any) -> int:
    """Return a number as an integer of 64 bits. Raises errors as `_decimal`."""
    number = value if isinstance(value, int) else int(_decimal(value, Decimal(1)))
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


_CONVERTERS: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): _integer,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.string(): str,
}
