"""Columns with a separator between them: csv, tsv, and what is like them (`lang page views bytes`)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.splitter.formats.base import Parsed
from skewless.splitter.formats.columns import Columns, Converter
from skewless.splitter.formats.lines import Lines

if TYPE_CHECKING:
    from skewless.splitter.settings import FieldRef, SplitterSettings

Split = Callable[[str], list[str]]


class Delimited:
    """Reads a record as one line of columns. There is no header: a record does not know its file."""

    default_separator: ClassVar[str]
    may_quote: ClassVar[bool] = False

    def __init__(self, settings: SplitterSettings) -> None:
        self._lines = Lines(settings.limits)
        self._converter = Converter(settings)
        self._key, self._value, self._time = (
            _column(part.field, settings.columns) for part in (settings.key, settings.value, settings.time)
        )
        needed = max(self._key, self._value, self._time) + 1
        self._split = self._splitter(settings, needed)

    @classmethod
    def problems(cls, settings: SplitterSettings) -> Iterator[str]:
        """Say which fields are missing or unknown, and which separator and quoting do not go together."""
        if settings.key.field is None:
            yield "key.field: missing, give the number (from 0) of the column that is the key"
        for name, part in (("key", settings.key), ("value", settings.value), ("time", settings.time)):
            if isinstance(part.field, str) and part.field not in settings.columns:
                known = f"one of columns ({', '.join(settings.columns)})" if settings.columns else "a column number"
                yield f"{name}.field: no column is named {part.field!r}, use {known}"
        if len(set(settings.columns)) < len(settings.columns):
            yield "columns: a name stands there twice"
        if not settings.quoting:
            return
        if not cls.may_quote:
            yield "quoting: only for csv, remove it (or choose csv with its separator)"
        elif settings.separator is not None and (len(settings.separator) != 1 or settings.separator in '"\r\n'):
            yield "quoting: needs a separator of one character that is neither quote nor line end"

    @classmethod
    def _splitter(cls, settings: SplitterSettings, needed: int) -> Split:
        separator = settings.separator or cls.default_separator
        if not settings.quoting:
            return lambda line: line.split(separator, needed)

        def split(line: str) -> list[str]:
            if '"' not in line:
                return line.split(separator, needed)
            return next(csv.reader([line], delimiter=separator, strict=True))

        return split

    def parse(self, values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> Parsed:
        """Read each record's columns; see `Format.parse`."""
        columns = Columns()
        rows: list[int] = []
        key, value, time, split = self._key, self._value, self._time, self._split
        for i, line in zip(*self._lines.read(values, columns.bad), strict=True):
            try:
                fields = split(line)
                found = fields[key], fields[value], fields[time]
            except IndexError:
                columns.bad[i] = self._missing(len(fields))
                continue
            except csv.Error:
                columns.bad[i] = "malformed quoting"
                continue
            rows.append(i)
            columns.keys.append(found[0])
            if value >= 0:
                columns.values.append(found[1])
            if time >= 0:
                columns.times.append(found[2])
        columns.rows = rows
        return self._converter.convert(columns, timestamps)

    def _missing(self, count: int) -> str:
        named = {"key": self._key, "value": self._value, "time": self._time}
        return next(f"{name} field missing" for name, column in named.items() if column >= count)


class Csv(Delimited):
    """Columns separated by commas, or by what `separator` says, with quotes if `quoting`."""

    default_separator = ","
    may_quote = True


class Tsv(Delimited):
    """Columns separated by tabs, or by what `separator` says."""

    default_separator = "\t"


_UNUSED = -1
"""Column number of a field that is not set: the last column is there in every record, and is not looked at."""


def _column(reference: FieldRef | None, names: Sequence[str]) -> int:
    if reference is None:
        return _UNUSED
    return names.index(reference) if isinstance(reference, str) else reference
