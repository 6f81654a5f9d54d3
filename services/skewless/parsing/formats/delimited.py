"""Formats with delimited columns: csv, tsv, and similar lines (`lang page views bytes`)."""

from __future__ import annotations

import contextlib
import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import FieldRef, FieldSettings, LimitSettings, value_fields
from skewless.parsing.formats.base import (
    Decoder,
    DetectedFormat,
    ExtractedFields,
    Format,
    FormatSettings,
    OptionalFields,
    SampledField,
    is_part,
    source_label,
)
from skewless.parsing.json_path import field_setting
from skewless.parsing.line_decoder import LineDecoder, line_of

MALFORMED_QUOTING = "malformed quoting"
DELIMITERS = ("\t", ";", ",", "|", " ")
"""Delimiters of sampled lines, in the order of preference among those that fit equally well."""
_FRACTION = re.compile(r"(?<=:\d\d),\d{3}(?!\d)")
"""Milliseconds of a time of day. Their comma does not separate columns."""
Split = Callable[[str], list[str]]
csv.field_size_limit(2**31 - 1)
"""The limit of a field is that of its record."""


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


class Delimited(Format):
    """Reads each record as one line of columns, without a header."""

    field_names: ClassVar[str] = "number of a column from 0, or a name of `format.columns`"
    has_paths: ClassVar[bool] = False
    kind: ClassVar[str] = "text"
    decode = staticmethod(line_of)

    def __init__(self, settings: DelimitedSettings, fields: FieldSettings) -> None:
        self._lines = LineDecoder(fields.limits)
        names = settings.columns
        columns = {path: _column(reference, names) for path, reference in fields.required.items()}
        skipped = {path for path, (value, _) in value_fields(fields).items() if value.missing == "skip"}
        self._values_or_null = {path: column for path, column in columns.items() if path in skipped}
        """Column numbers of the values that a line need not have."""
        self._columns = {path: column for path, column in columns.items() if path not in skipped}
        """Column number of each required field, by the path of its settings."""
        self._optional = {path: _column(reference, names) for path, reference in fields.optional.items()}
        self._labels = {path: source_label(path, fields) for path in self._columns}
        self._last = max(self._columns.values(), default=-1)
        """Number of the last column that is required."""
        self._split = self._splitter(settings, max([self._last, *columns.values(), *self._optional.values()]) + 1)

    @classmethod
    def validate(cls, settings: DelimitedSettings, fields: FieldSettings) -> Iterator[str]:
        """Yield a line for each missing or unknown field, and for a delimiter that does not work with quoting."""
        if fields.key.in_value and fields.key.field is None:
            yield "key.field: missing, set the number (from 0) of the key's column"
        for path, reference in {**fields.required, **fields.optional}.items():
            if isinstance(reference, str) and reference not in settings.columns:
                names = ", ".join(settings.columns)
                alternative = f"one of format.columns ({names})" if names else "a column number"
                yield f"{field_setting(path)}: no column is named {reference!r}, use {alternative}"
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

    @classmethod
    def decoder(cls, settings: DelimitedSettings, limits: LimitSettings) -> Decoder:
        """Return a function that decodes lines as `list` of columns, or as `dict` if the columns have names."""
        lines, names = LineDecoder(limits), settings.columns
        split = cls._splitter(settings, -1)

        def decode(values: Sequence[bytes | None], invalid: Problems) -> tuple[list[int], list[Any]]:
            rows: list[int] = []
            found: list[Any] = []
            for row, line in zip(*lines.read(values, invalid), strict=True):
                try:
                    columns = split(line)
                except csv.Error:
                    invalid[row] = MALFORMED_QUOTING
                    continue
                rows.append(row)
                found.append(dict(zip(names, columns, strict=False)) if names else columns)
            return rows, found

        return decode

    def extract(self, values: Sequence[bytes | None]) -> ExtractedFields:
        """Read the columns of each record; see `Format.extract`."""
        extracted = ExtractedFields()
        rows: list[int] = []
        lines: list[list[str]] = []
        split, last = self._split, self._last
        for i, line in zip(*self._lines.read(values, extracted.invalid), strict=True):
            try:
                columns = split(line)
            except csv.Error:
                extracted.invalid[i] = MALFORMED_QUOTING
                continue
            if len(columns) <= last:
                extracted.invalid[i] = self._missing(len(columns))
                continue
            rows.append(i)
            lines.append(columns)
        fields: dict[str, list[Any]] = {
            path: list(map(itemgetter(column), lines)) for path, column in self._columns.items()
        }
        fields |= _cells(lines, self._values_or_null)
        extracted.rows, extracted.keys, extracted.times = rows, fields.pop("key", []), fields.pop("time", [])
        extracted.parts = {path: fields.pop(path) for path in self._columns if is_part(path)}
        extracted.values |= fields
        return extracted

    def lookup(self, values: Sequence[bytes | None]) -> OptionalFields:
        """Read the columns that exist; see `Format.lookup`."""
        invalid: Problems = {}
        rows: list[int] = []
        lines: list[list[str]] = []
        for i, line in zip(*self._lines.read(values, invalid), strict=True):
            try:
                lines.append(self._split(line))
            except csv.Error:
                invalid[i] = MALFORMED_QUOTING
                continue
            rows.append(i)
        return OptionalFields(rows, _cells(lines, self._optional), invalid)

    def _missing(self, count: int) -> str:
        """Return the reason for a line of only `count` columns."""
        return next(f"{self._labels[path]} is missing" for path, column in self._columns.items() if column >= count)

    @classmethod
    def sample(cls, settings: DelimitedSettings, _key: str, fields: Sequence[tuple[FieldRef, Any]]) -> bytes:
        """Return a line with these columns; see `Format.sample`."""
        cells = {_column(reference, settings.columns): str(value) for reference, value in fields}
        count = max(len(settings.columns), max(cells) + 1)
        return settings.delimiter.join(cells.get(column, "") for column in range(count)).encode()


class Csv(Delimited):
    """One line of columns, separated by commas or by another delimiter, with quotes if `quoting` is set."""

    settings: ClassVar[type[FormatSettings]] = CsvSettings

    @classmethod
    def detect(cls, lines: Sequence[str]) -> DetectedFormat | None:
        """Find the delimiter, also that of tsv, with the same number of columns in most lines; see `Format.detect`."""
        best, best_share = None, cls.min_share
        for delimiter in DELIMITERS:
            separators = Counter(_FRACTION.sub("", line).count(delimiter) for line in lines).most_common(1)[0][0]
            if not separators:
                continue
            found = _columns(delimiter, lines)
            share = found.lines / len(lines)
            if share > best_share or (best is None and share >= cls.min_share):
                best, best_share = found, share
        return best and _detected(best, lines)


class Tsv(Delimited):
    """One line of columns, separated by tabs."""

    settings: ClassVar[type[FormatSettings]] = TsvSettings


class _Columns(NamedTuple):
    """Lines as columns, without the lines that have another number of them than most."""

    delimiter: str
    rows: Sequence[Sequence[str]]
    lines: int
    """Number of lines with the same number of delimiters, with or without quotes."""
    is_quoted: bool


def _columns(delimiter: str, lines: Sequence[str]) -> _Columns:
    """Split lines, with quotes unless these are content of most lines that have any."""
    plain = _of_one_width([line.split(delimiter) for line in lines])
    with_quotes = sum(_begins_with_quote(line, delimiter) for line in lines)
    if delimiter != "\t" and with_quotes:
        # Lines with a delimiter within quotes have more columns without them. A few with malformed quotes do not
        # outvote those that are well formed.
        unquoted = _unquoted(delimiter, lines)
        well_formed = with_quotes - (len(lines) - len(unquoted))
        quoted = _of_one_width(unquoted)
        if len(plain) - len(quoted) < well_formed and quoted and len(quoted[0]) > 1:
            return _Columns(delimiter, quoted, max(len(plain), len(quoted)), is_quoted=True)
    return _Columns(delimiter, plain, len(plain), is_quoted=False)


def _begins_with_quote(line: str, delimiter: str) -> bool:
    return line.startswith('"') or f'{delimiter}"' in line


def _of_one_width(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    widths = Counter(map(len, rows)).most_common(1)
    return [row for row in rows if len(row) == widths[0][0]]


def _detected(columns: _Columns, lines: Sequence[str]) -> DetectedFormat:
    delimiter, rows = columns.delimiter, columns.rows
    settings: dict[str, Any] = {"name": "tsv"} if delimiter == "\t" else {"name": "csv", "delimiter": delimiter}
    if columns.is_quoted:
        settings["quoting"] = True
    width = len(rows[0])
    fields = [SampledField(column, [row[column] for row in rows], 1.0) for column in range(width)]
    name = {"\t": "tab", " ": "space"}.get(delimiter, f'"{delimiter}"')
    return DetectedFormat(f"{width} columns, delimiter {name}", settings, fields, 1 - len(rows) / len(lines))


def _unquoted(delimiter: str, lines: Iterable[str]) -> list[list[str]]:
    """Return the columns of the lines whose quotes are well formed."""
    found = []
    for line in lines:
        with contextlib.suppress(csv.Error):
            found.append(next(csv.reader([line], delimiter=delimiter, strict=True)))
    return found


def _cells(lines: Sequence[Sequence[str]], columns: Mapping[str, int]) -> dict[str, list[Any]]:
    """Return columns of lines by path, with None for each line that is too short."""
    return {path: [line[column] if column < len(line) else None for line in lines] for path, column in columns.items()}


def _column(reference: FieldRef, names: Sequence[str]) -> int:
    """Return the column number of a field."""
    return names.index(reference) if isinstance(reference, str) else reference
