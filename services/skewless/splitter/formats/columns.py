"""From the columns of fields that a format read to the tuples of a batch: the part that all formats share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from skewless.splitter.fields import Keys, Problems, times, values
from skewless.splitter.fixed_point import Scalar
from skewless.splitter.formats.base import Parsed
from skewless.splitter.merging import Merging

if TYPE_CHECKING:
    from skewless.splitter.settings import SplitterSettings


@dataclass(slots=True)
class Columns:
    """The fields of a batch's readable records, before any conversion."""

    rows: Sequence[int] = range(0)
    """Index in the batch of each readable record, ascending."""
    times: list[Scalar] = field(default_factory=list)
    """One per row; empty without a time field."""
    keys: list[Scalar] = field(default_factory=list)
    key_rows: NDArray[np.intp] | None = None
    """Position in `rows` of each key, non-decreasing; None: one key per row."""
    values: list[Scalar] = field(default_factory=list)
    """One per key; empty without a value field."""
    bad: Problems = field(default_factory=dict)
    """Records that are not readable, by index in the batch."""


class Converter:
    """Turns columns of fields into tuples. A record with one bad field is bad as a whole."""

    def __init__(self, settings: SplitterSettings) -> None:
        key = settings.key
        self._keys = Keys(
            strip_prefix=key.strip_prefix,
            pattern=key.pattern,
            lower=key.lower,
            merging=Merging(key.skip, key.merge) if key.skip or key.merge else None,
            key_bytes=settings.limits.key_bytes,
            searched_bytes=settings.limits.searched_bytes,
        )
        self._value = settings.value
        self._default = settings.value.default * 10**settings.value.decimals
        self._time = settings.time
        self._tuples_per_record = settings.limits.tuples_per_record

    def convert(self, columns: Columns, timestamps: NDArray[np.int64]) -> Parsed:
        """Convert all columns; every problem that one of them has makes its record bad."""
        rows = _indices(columns.rows)
        bad = columns.bad
        instants = self._times(columns.times, rows, timestamps, bad)
        found = self._keys.convert(columns.keys)
        keys, origins = found.keys, found.origins
        key_records = rows if columns.key_rows is None else rows[columns.key_rows]
        records = key_records if origins is None else key_records[origins]
        _blame(found.unsearchable, key_records, bad)
        _blame(found.problems, records, bad)
        numbers = self._values(columns.values, key_records, origins, len(keys), bad)
        if origins is not None or columns.key_rows is not None:
            self._count(records, bad)
        if bad:
            keep = ~np.isin(records, np.fromiter(bad, np.int32, len(bad)))
            keys, numbers, records = list(compress(keys, keep)), numbers[keep], records[keep]
        return Parsed(keys, numbers, records, instants, sorted(bad.items()))

    def _times(
        self, column: Sequence[Scalar], rows: NDArray[np.int32], timestamps: NDArray[np.int64], bad: Problems
    ) -> NDArray[np.int64]:
        if self._time.field is None:
            return timestamps
        converted, problems = times(column, self._time.unit)
        _blame(problems, rows, bad)
        result = np.zeros(len(timestamps), np.int64)
        result[rows] = converted
        return result

    def _values(
        self,
        column: Sequence[Scalar],
        key_records: NDArray[np.int32],
        origins: NDArray[np.intp] | None,
        tuples: int,
        bad: Problems,
    ) -> NDArray[np.int64]:
        if self._value.field is None:
            return np.full(tuples, self._default, np.int64)
        converted, problems = values(column, self._value.decimals)
        _blame(problems, key_records, bad)
        return converted if origins is None else converted[origins]

    def _count(self, records: NDArray[np.int32], bad: Problems) -> None:
        limit = self._tuples_per_record
        for record in np.flatnonzero(np.bincount(records) > limit).tolist():
            bad.setdefault(record, f"more than {limit} tuples")


def _blame(problems: Problems, records: NDArray[np.int32], bad: Problems) -> None:
    """Make the record of each problem bad; the reason that was found first stays."""
    for position, reason in problems.items():
        bad.setdefault(int(records[position]), reason)


def _indices(rows: Sequence[int]) -> NDArray[np.int32]:
    return np.arange(len(rows), dtype=np.int32) if rows == range(len(rows)) else np.array(rows, np.int32)
