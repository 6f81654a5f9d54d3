"""Builds the tuples of a batch from the columns of fields that a format extracted. Shared by all formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from skewless.parsing.converters import KeyConverter, Problems, times, values
from skewless.parsing.field_settings import FieldSettings
from skewless.parsing.fixed_point import Scalar
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.key_rules import KeyRules


@dataclass(slots=True)
class ExtractedFields:
    """Unconverted fields of the valid records of a batch."""

    rows: Sequence[int] = range(0)
    """Index in the batch of each valid record, ascending."""
    times: list[Scalar] = field(default_factory=list)
    """One per row. Empty without a time field."""
    keys: list[Scalar] = field(default_factory=list)
    key_rows: NDArray[np.intp] | None = None
    """Index in `rows` of each key, non-decreasing. None: one key per row."""
    values: list[Scalar] = field(default_factory=list)
    """One per key. Empty without a value field."""
    invalid: Problems = field(default_factory=dict)
    """Reasons of invalid records, by index in the batch."""


class TupleBuilder:
    """Converts columns of fields to tuples. A record with an invalid field is invalid as a whole."""

    def __init__(self, settings: FieldSettings) -> None:
        key = settings.key
        self._keys = KeyConverter(
            strip_prefix=key.strip_prefix,
            pattern=key.pattern,
            lowercase=key.lowercase,
            rules=KeyRules(key.drop_if_contains, key.rename_if_contains),
            key_bytes=settings.limits.key_bytes,
            pattern_input_bytes=settings.limits.pattern_input_bytes,
        )
        self._value = settings.value
        self._constant = settings.value.constant * 10**settings.value.decimals
        self._time = settings.time
        self._tuples_per_record = settings.limits.tuples_per_record

    def convert(self, columns: ExtractedFields, timestamps: NDArray[np.int64]) -> ParsedBatch:
        """Return the tuples. A record is invalid if any of its fields is."""
        rows = _to_array(columns.rows)
        invalid = columns.invalid
        instants = self._times(columns.times, rows, timestamps, invalid)
        key_column = self._keys.convert(columns.keys)
        keys, row_indices = key_column.keys, key_column.row_indices
        key_records = rows if columns.key_rows is None else rows[columns.key_rows]
        records = key_records if row_indices is None else key_records[row_indices]
        _mark_invalid(key_column.unsearchable, key_records, invalid)
        _mark_invalid(key_column.problems, records, invalid)
        numbers = self._values(columns.values, key_records, row_indices, len(keys), invalid)
        if row_indices is not None or columns.key_rows is not None:
            self._check_tuples_per_record(records, invalid)
        if invalid:
            keep = ~np.isin(records, np.fromiter(invalid, np.int32, len(invalid)))
            keys, numbers, records = list(compress(keys, keep)), numbers[keep], records[keep]
        return ParsedBatch(keys, numbers, records, instants, sorted(invalid.items()))

    def _times(
        self, column: Sequence[Scalar], rows: NDArray[np.int32], timestamps: NDArray[np.int64], invalid: Problems
    ) -> NDArray[np.int64]:
        if self._time.field is None:
            return timestamps
        converted, problems = times(column, self._time.unit)
        _mark_invalid(problems, rows, invalid)
        result = np.zeros(len(timestamps), np.int64)
        result[rows] = converted
        return result

    def _values(
        self,
        column: Sequence[Scalar],
        key_records: NDArray[np.int32],
        row_indices: NDArray[np.intp] | None,
        tuples: int,
        invalid: Problems,
    ) -> NDArray[np.int64]:
        if self._value.field is None:
            return np.full(tuples, self._constant, np.int64)
        converted, problems = values(column, self._value.decimals)
        _mark_invalid(problems, key_records, invalid)
        return converted if row_indices is None else converted[row_indices]

    def _check_tuples_per_record(self, records: NDArray[np.int32], invalid: Problems) -> None:
        limit = self._tuples_per_record
        for record in np.flatnonzero(np.bincount(records) > limit).tolist():
            invalid.setdefault(record, f"more than {limit} tuples")


def _mark_invalid(problems: Problems, records: NDArray[np.int32], invalid: Problems) -> None:
    """Add the record of each problem to `invalid`. The first reason of a record is kept."""
    for index, reason in problems.items():
        invalid.setdefault(int(records[index]), reason)


def _to_array(rows: Sequence[int]) -> NDArray[np.int32]:
    return np.arange(len(rows), dtype=np.int32) if rows == range(len(rows)) else np.array(rows, np.int32)
