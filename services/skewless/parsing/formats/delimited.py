"""Formats with delimited columns: csv, tsv, and similar lines (`lang page views bytes`)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from skewless.parsing.field_settings import FieldRef, FieldSettings, value_fields
from skewless.parsing.formats.base import FormatSettings, ParsedBatch
from skewless.parsing.json_path import field_setting
from skewless.parsing.line_decoder import LineDecoder
from skewless.parsing.tuple_builder import ExtractedFields, TupleBuilder

Split = Callable[[str], list[str]]


class DelimitedSettings(FormatSettings):
    """Settings of lines with delimited columns."""

    delimiter: str = Field(min_length=1, max_length=16, description="Text between two columns.")
    columns: tuple[str, ...] = Field(
        (), description="Names of the columns, which fields may then use instead of numbers. Optional."
    )


class CsvSettings(DelimitedSettings):
    """Settings of csv: columns separated by commas, or by another delimiter."""

    name: Literal["csv"] = "csv"
    delimiter: str = Field(",", min_length=1, max_length=16, description="Text between two columns.")
    quoting: bool = Field(
        default=False, description='Whether columns may be enclosed in double quotes (RFC 4180, `""` = `"`).'
    )


class TsvSettings(DelimitedSettings):
    """Settings of tsv: columns separated by tabs."""

    name: Literal["tsv"] = "tsv"
    delimiter: str = Field("\t", min_length=1, max_length=16, description="Text between two columns.")


class Delimited:
    """Reads each record as one line of columns, without a header."""

    settings: ClassVar[type[FormatSettings]]

    def __init__(self, settings: DelimitedSettings, fields: FieldSettings) -> None:
        self._lines = LineDecoder(fields.limits)
        self._converter = TupleBuilder(fields)
        columns = {name: _column(reference, settings.columns) for name, reference in _references(fields).items()}
        self._columns = {name: column for name, column in columns.items() if column is not None}
        """Column number of each field that is set, by the name of the field."""
        optional = {name for name, (value, _) in value_fields(fields).items() if value.missing == "skip"}
        self._optional = {name: column for name, column in self._columns.items() if name in optional}
        """Column numbers of the fields that a line need not have."""
        self._required = {name: column for name, column in self._columns.items() if name not in optional}
        self._last = max(self._columns.values())
        """Number of the last column that is read."""
        self._split = self._splitter(settings, self._last + 1)

    @classmethod
    def open(cls, settings: DelimitedSettings, fields: FieldSettings) -> Self:
        """See `FormatType.open`."""
        return cls(settings, fields)

    @classmethod
    def validate(cls, settings: DelimitedSettings, fields: FieldSettings) -> Iterator[str]:
        """Yield a line for each missing or unknown field, and for a delimiter that does not work with quoting."""
        if fields.key.field is None:
            yield "key.field: missing, set the number (from 0) of the key's column"
        for name, reference in _references(fields).items():
            if isinstance(reference, str) and reference not in settings.columns:
                names = ", ".join(settings.columns)
                alternative = f"one of format.columns ({names})" if names else "a column number"
                yield f"{field_setting(name)}: no column is named {reference!r}, use {alternative}"
        if len(set(settings.columns)) < len(settings.columns):
            yield "format.columns: a name is listed twice"
        quoting = isinstance(settings, CsvSettings) and settings.quoting
        if quoting and (len(settings.delimiter) != 1 or settings.delimiter in '"\r\n'):
            yield "format.quoting: needs a delimiter of one character that is neither quote nor line end"

    @classmethod
    def _splitter(cls, settings: DelimitedSettings, column_count: int) -> Split:
        """Return a function that splits a line. Columns after the first `column_count` may stay unsplit."""
        delimiter = settings.delimiter
        if not (isinstance(settings, CsvSettings) and settings.quoting):
            return lambda line: line.split(delimiter, column_count)

        def split(line: str) -> list[str]:
            if '"' not in line:
                return line.split(delimiter, column_count)
            return next(csv.reader([line], delimiter=delimiter, strict=True))

        return split

    def parse(self, values: Sequence[bytes | None], timestamps: NDArray[np.int64]) -> ParsedBatch:
        """Parse the columns of each record; see `Format.parse`."""
        extracted = ExtractedFields()
        rows: list[int] = []
        lines: list[list[str]] = []
        split, last = self._split, max(self._required.values())
        for i, line in zip(*self._lines.read(values, extracted.invalid), strict=True):
            try:
                columns = split(line)
            except csv.Error:
                extracted.invalid[i] = "malformed quoting"
                continue
            if len(columns) <= last:
                extracted.invalid[i] = self._missing(len(columns))
                continue
            rows.append(i)
            lines.append(columns)
        fields: dict[str, list[Any]] = {
            name: list(map(itemgetter(column), lines)) for name, column in self._required.items()
        }
        for name, column in self._optional.items():
            fields[name] = [columns[column] if column < len(columns) else None for columns in lines]
        extracted.rows, extracted.keys, extracted.times = rows, fields.pop("key"), fields.pop("time", [])
        extracted.values |= fields
        return self._converter.convert(extracted, timestamps)

    def _missing(self, count: int) -> str:
        """Return the reason for a line of only `count` columns."""
        return next(f"{name} field missing" for name, column in self._required.items() if column >= count)


class Csv(Delimited):
    """Columns separated by commas, or by another delimiter, with quotes if `quoting` is set."""

    settings: ClassVar[type[FormatSettings]] = CsvSettings


class Tsv(Delimited):
    """Columns separated by tabs, or by another delimiter."""

    settings: ClassVar[type[FormatSettings]] = TsvSettings


def _references(fields: FieldSettings) -> dict[str, FieldRef | None]:
    """Return the fields by the name of their setting."""
    values = {name: reference for name, (_, reference) in value_fields(fields).items()}
    return {"key": fields.key.field, **values, "time": fields.time.field}


def _column(reference: FieldRef | None, names: Sequence[str]) -> int | None:
    """Return the column number of a field. None if the field is not set."""
    return names.index(reference) if isinstance(reference, str) else reference
