"""Builds the tuples of a batch from the columns of fields that a format extracted. Shared by all formats."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.parsing import converters
from skewless.parsing.composite_key import CompositeKey
from skewless.parsing.converters import Problems, coarser_units, dates_with_times, is_missing, products, texts, times
from skewless.parsing.field_settings import TIME_OF_DAY, FieldSettings, ValueSettings, value_path
from skewless.parsing.fixed_point import Reread, Scalar
from skewless.parsing.formats.base import ExtractedFields, ParsedBatch, source_label
from skewless.parsing.key_converter import KeyConverter
from skewless.parsing.source_records import SourceRecords

log = logging.getLogger(__name__)

FIRST_USUAL_MS = 631_152_000_000
"""1990-01-01T00:00:00Z. Event times before it may be in another unit."""
MS_PER_DAY = 86_400_000


class TupleBuilder:
    """Converts columns of fields to tuples. A record with an invalid field is invalid as a whole."""

    def __init__(self, settings: FieldSettings) -> None:
        key = settings.key
        self._keys = KeyConverter(key, settings.limits)
        self._composite = CompositeKey(settings) if key.fields else None
        self._values = {name: (value_path(settings, name), value) for name, value in settings.named_values.items()}
        self._rounded = 0
        """Number of rounded values of the batch that is converted."""
        self._may_warn = {path for path, value in self._values.values() if "decimals" not in value.model_fields_set}
        """Paths of the values that no setting rounds."""
        self._labels = {
            "key": source_label("key", settings, key.header),
            "time": _time_label(settings),
            **{path: _value_label(path, settings, value) for path, value in self._values.values()},
        }
        self._text_bytes = settings.limits.text_bytes
        self._time = settings.time
        self._tuples_per_record = settings.limits.tuples_per_record
        has_field = self._time.field is not None or self._time.header is not None
        self._other_units = coarser_units(self._time.unit) if has_field else {}
        """Units in which the times may be instead, until the first tuples have shown it."""

    def convert(self, fields: ExtractedFields, source: SourceRecords) -> ParsedBatch:
        """Return the tuples of records whose fields were extracted. A record is invalid if any of its fields is."""
        rows = _to_array(fields.rows)
        invalid = fields.invalid
        self._rounded = 0
        event_times = self._times(fields, rows, source)
        if self._composite is not None:
            fields.keys[:], problems = self._composite.convert(fields.parts, event_times[rows])
            for index, reason in problems.items():
                invalid.setdefault(int(rows[index]), reason)
        key_column = self._keys.convert(fields.keys)
        keys, row_indices = key_column.keys, key_column.row_indices
        key_records = rows if fields.key_rows is None else rows[fields.key_rows]
        records = key_records if row_indices is None else key_records[row_indices]
        self._mark_invalid("key", key_column.unsearchable, key_records, invalid)
        self._mark_invalid("key", key_column.problems, records, invalid)
        values = {
            name: self._value(fields, path, value, key_records, row_indices, len(keys))
            for name, (path, value) in self._values.items()
        }
        if row_indices is not None or fields.key_rows is not None:
            self._check_tuples_per_record(records, invalid)
        if invalid:
            keep = ~np.isin(records, np.fromiter(invalid, np.int32, len(invalid)))
            keys, records = list(compress(keys, keep)), records[keep]
            values = {name: array.filter(pa.array(keep)) for name, array in values.items()}
        if self._other_units and keys:
            self._warn_of_unit(event_times[records], source.timestamps[records])
        return ParsedBatch(keys, values, records, event_times, sorted(invalid.items()), rounded=self._rounded)

    def _warn_of_rounding(self, path: str, rounded: int, numbers: int) -> None:
        """Log once for each value that it is rounded although no setting says to which place."""
        if path in self._may_warn:
            log.warning(
                "%s is rounded to a whole number, as %d of %d numbers just now: set splitter.%s.decimals to the number "
                "of decimal places to keep, or to 0",
                self._labels[path],
                rounded,
                numbers,
                path,
            )
            self._may_warn.remove(path)

    def _warn_of_unit(self, event_times: NDArray[np.int64], timestamps: NDArray[np.int64]) -> None:
        """Log that the first times are near the Kafka timestamps in another unit, if they are in January 1970."""
        first, last, latest = int(event_times.min()), int(event_times.max()), int(timestamps.max()) + MS_PER_DAY
        for unit, factor in self._other_units.items():
            if first * factor >= FIRST_USUAL_MS and last * factor <= latest:
                log.warning(
                    "%s is in January 1970 if its unit is %s, and in %s it is near the timestamps of the records: set "
                    "time.unit: %s",
                    self._labels["time"],
                    self._time.unit,
                    unit,
                    unit,
                )
                break
        self._other_units = {}

    def _times(self, fields: ExtractedFields, rows: NDArray[np.int32], source: SourceRecords) -> NDArray[np.int64]:
        if self._time.field is None and self._time.header is None:
            return source.timestamps
        column = fields.times
        if self._time.of_day is not None:
            column = dates_with_times(column, fields.parts[TIME_OF_DAY])
        converted, problems = times(column, self._time.unit)
        self._mark_invalid("time", problems, rows, fields.invalid)
        result = np.zeros(len(source.values), np.int64)
        result[rows] = converted
        return result

    def _value(  # noqa: PLR0913, PLR0917 - by position
        self,
        fields: ExtractedFields,
        path: str,
        value: ValueSettings,
        key_records: NDArray[np.int32],
        row_indices: NDArray[np.intp] | None,
        tuples: int,
    ) -> pa.Array:
        """Return the values of the tuples."""
        if value.field is None and value.header is None:
            return pa.array(np.full(tuples, value.constant * 10**value.decimals, np.int64))
        array, problems = self._converted(fields, path, value)
        self._mark_invalid(path, problems, key_records, fields.invalid)
        return array if row_indices is None else array.take(pa.array(row_indices))

    def _converted(self, fields: ExtractedFields, path: str, value: ValueSettings) -> tuple[pa.Array, Problems]:
        """Convert fields to values. Missing ones are null if they are optional."""
        columns = [fields.values[name] for name in (path, f"{path}.times") if name in fields.values]
        missing = np.zeros(len(columns[0]), np.bool_)
        if value.missing != "invalid" or value.kind != "number":
            for column in columns:
                missing |= np.fromiter(map(is_missing, column), np.bool_, len(column))
        elif fields.key_rows is None:
            # The conversion reports null as a problem, as anything else that is not a number.
            return self._convert(fields, path, value, None)
        is_converted = ~missing
        if fields.key_rows is not None:
            is_converted &= _is_other(columns, fields.key_rows)
        present = np.flatnonzero(is_converted).tolist()
        array, problems = self._convert(fields, path, value, present)
        array = array.take(pa.array(np.cumsum(is_converted) - 1, mask=missing))
        problems = {present[i]: problem for i, problem in problems.items()}
        if value.missing == "invalid":
            problems |= dict.fromkeys(np.flatnonzero(missing).tolist(), "is missing")
        return array, problems

    def _convert(
        self, fields: ExtractedFields, path: str, value: ValueSettings, present: Sequence[int] | None
    ) -> tuple[pa.Array, Problems]:
        """Convert the entries of a value that are present; None: all of them."""
        column, reread = _present(fields, path, present)
        if value.kind == "text":
            return texts(column, self._text_bytes)
        if f"{path}.times" in fields.values:
            factors, reread_factors = _present(fields, f"{path}.times", present)
            numbers, problems, rounded = products(column, factors, value.decimals, reread, reread_factors)
        else:
            numbers, problems, rounded = converters.values(column, value.decimals, reread)
        if rounded:
            self._rounded += rounded
            self._warn_of_rounding(path, rounded, len(column))
        return pa.array(numbers), problems

    def _mark_invalid(self, path: str, problems: Problems, records: NDArray[np.int32], invalid: Problems) -> None:
        """Add the record of each problem of a field to `invalid`. The first reason of a record is kept."""
        for index, problem in problems.items():
            invalid.setdefault(int(records[index]), f"{self._labels[path]} {problem}")

    def _check_tuples_per_record(self, records: NDArray[np.int32], invalid: Problems) -> None:
        limit = self._tuples_per_record
        for record in np.flatnonzero(np.bincount(records) > limit).tolist():
            invalid.setdefault(record, f"more than {limit} tuples")


def _is_other(columns: Sequence[Sequence[object]], key_rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return whether each key has another record, or another object in a column, than the key before it.

    All keys of a record share a value that is not in their list. It may be long, so it is converted once.
    """
    result = np.ones(len(key_rows), np.bool_)
    result[1:] = np.diff(key_rows) != 0
    for column in columns:
        result[1:] |= np.fromiter(map(is_not, column[1:], column), np.bool_)
    return result


def _present(
    fields: ExtractedFields, path: str, present: Sequence[int] | None
) -> tuple[Sequence[Scalar], Reread | None]:
    """Return the entries of a value that are present (None: all), and how to read some of them again."""
    column, reread = cast("Sequence[Scalar]", fields.values[path]), fields.reread
    if present is not None:
        column = [column[i] for i in present]
    if reread is None:
        return column, None
    return column, lambda indices: reread(path, indices if present is None else [present[i] for i in indices])


def _time_label(settings: FieldSettings) -> str:
    """Return how reasons of dead letters call the time: that of a date and a time of day names both fields."""
    label, time = source_label("time", settings, settings.time.header), settings.time
    return label if time.of_day is None else f"{label} with of_day {time.of_day}"


def _value_label(path: str, settings: FieldSettings, value: ValueSettings) -> str:
    """Return how reasons of dead letters call a value: that of a product names both fields."""
    label = source_label(path, settings, value.header)
    return label if value.times is None else f"{label} times {settings.required[f'{path}.times']}"


def _to_array(rows: Sequence[int]) -> NDArray[np.int32]:
    return np.arange(len(rows), dtype=np.int32) if rows == range(len(rows)) else np.array(rows, np.int32)
