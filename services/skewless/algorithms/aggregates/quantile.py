"""Quantiles of the values in a group: exact for few distinct values, otherwise with a bounded relative error.

A group with few distinct values is stored as its values and their counts, a larger one as the counts of logarithmic
buckets, as in C. Masson, J. E. Rim, H. K. Lee, "DDSketch: a fast and fully-mergeable quantile sketch with
relative-error guarantees" (2019). Both depend on the multiset of the values only, not on their order or division. The
bounds of the buckets are integers that are computed without floating-point numbers, so that they are equal everywhere.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, field_validator

from skewless.algorithms.aggregates.base import Aggregate, Results
from skewless.algorithms.aggregates.distinct_pairs import EXACT_LIMIT, merged_pairs, segments, sorted_pairs
from skewless.algorithms.aggregates.partial_column import (
    Binary,
    BinaryColumn,
    Groups,
    PartialColumn,
    Partials,
    Tuples,
    as_objects,
)
from skewless.settings_base import SettingsModel

ERROR_STEPS = 10_000
"""The relative error is a multiple of 1 / ERROR_STEPS."""
_VALUES, _BUCKETS = b"v", b"b"
"""First byte of a partial: values or buckets. Then come all values or buckets in ascending order, and their counts."""
_AT_ONCE = 2**18
"""Bytes of partials that are computed together: enough to make the calls of numpy cheap, with little memory."""


class QuantileArguments(SettingsModel):
    """Settings of `quantile`."""

    at: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1, max_length=100)] = Field(
        (0.5,), description="Quantiles between 0 and 1. Each is a result of its own: `<value>_p50` for 0.5."
    )
    relative_error: float = Field(
        0.01,
        ge=0.001,
        le=0.1,
        description="Maximum relative error for a key with more than 256 distinct values in a window, a multiple of "
        "0.0001. A bucket takes 16 bytes; with 0.01 a factor of 10 between values has 115 buckets.",
    )

    @field_validator("relative_error")
    @classmethod
    def _is_a_multiple(cls, error: float) -> float:
        if abs(error * ERROR_STEPS - round(error * ERROR_STEPS)) > 1e-9:
            raise ValueError(f"should be a multiple of {1 / ERROR_STEPS}")
        return error


@functools.cache
def bucket_starts(error: int) -> NDArray[np.uint64]:
    """Return the smallest number of each bucket of positive integers. `error` is the relative error * ERROR_STEPS.

    The largest number of a bucket is at most (1 + error) / (1 - error) times the smallest one. The number
    2 * smallest * largest / (smallest + largest) is then within the error of every number in the bucket.
    """
    starts, start = [], 1
    while start <= 2**63:
        starts.append(start)
        start = start * (ERROR_STEPS + error) // (ERROR_STEPS - error) + 1
    return np.array(starts, dtype=np.uint64)


def _bucket_of(values: NDArray[np.int64], error: int) -> NDArray[np.int64]:
    """Return the bucket of each value: 1, 2, ... for positive, -1, -2, ... for negative values, and 0 for 0."""
    magnitudes = np.where(values < 0, -values, values).view(np.uint64)
    return np.searchsorted(bucket_starts(error), magnitudes, side="right") * np.sign(values)


def _value_in(bucket: int, error: int) -> float:
    """Return the number that is within the relative error of all values in a bucket."""
    if bucket == 0:
        return 0.0
    starts = bucket_starts(error)
    smallest = int(starts[abs(bucket) - 1])
    largest = int(starts[abs(bucket)]) - 1 if abs(bucket) < len(starts) else 2**63
    return math.copysign(2 * smallest * largest / (smallest + largest), bucket)


def _encode(kind: bytes, numbers: NDArray[np.int64], counts: NDArray[np.int64]) -> bytes:
    return kind + numbers.astype("<i8").tobytes() + counts.astype("<i8").tobytes()


def _decode(partials: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return how many numbers each partial has, and the numbers and counts of all of them one after the other."""
    sizes = np.array([len(partial) // 16 for partial in partials], dtype=np.int64)
    content = np.frombuffer(b"".join([partial[1:] for partial in partials]), dtype="<i8").astype(np.int64, copy=False)
    is_number = np.repeat(np.tile([True, False], len(sizes)), np.repeat(sizes, 2))
    return sizes, content[is_number], content[~is_number]


def _parts(partials: Sequence[bytes], starts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield start and end of groups that are computed together. `starts` has the start of each group, and the end."""
    bytes_before = np.cumsum([0, *map(len, partials)])[starts[:-1]]
    return pairwise([*np.flatnonzero(np.diff(bytes_before // _AT_ONCE, prepend=-1)).tolist(), len(bytes_before)])


@dataclass(frozen=True)
class PrepareQuantile:
    """Returns the sketch of each group of tuples."""

    error: int

    def __call__(self, tuples: Tuples, group_of: Groups, groups: int) -> Binary:
        """Return the partial of each group."""
        pair_groups, values, counts = sorted_pairs(group_of, tuples.values)
        return as_objects(
            self.of_values(values[start:end], counts[start:end]) for start, end in segments(pair_groups, groups)
        )

    def of_values(self, values: NDArray[np.int64], counts: NDArray[np.int64]) -> bytes:
        """Return the partial of a group with these distinct values, which are sorted."""
        if len(values) <= EXACT_LIMIT:
            return _encode(_VALUES, values, counts)
        buckets, starts = np.unique(_bucket_of(values, self.error), return_index=True)
        return _encode(_BUCKETS, buckets, np.add.reduceat(counts, starts))


@dataclass(frozen=True)
class MergeQuantile:
    """Merges results of `PrepareQuantile`."""

    prepare: PrepareQuantile

    def __call__(self, partials: Binary, group_of: Groups, groups: int) -> Binary:
        """Return the merged partial of each group."""
        merged = np.empty(groups, dtype=np.object_)
        merged[group_of] = partials
        rows = np.flatnonzero((np.bincount(group_of, minlength=groups) > 1)[group_of])
        rows = rows[np.argsort(group_of[rows], kind="stable")]
        several, dense = np.unique(group_of[rows], return_inverse=True)
        listed = partials[rows].tolist()
        starts = np.searchsorted(dense, np.arange(len(several) + 1))
        for first, last in _parts(listed, starts):
            start, end = starts[first], starts[last]
            merged[several[first:last]] = self._merged(listed[start:end], dense[start:end] - first, last - first)
        return merged

    def _merged(self, partials: Sequence[bytes], group_of: Groups, groups: int) -> Binary:
        """Return the merged partial of each group. The groups are ascending."""
        sizes, numbers, counts = _decode(partials)
        has_buckets = np.array([partial[:1] == _BUCKETS for partial in partials], dtype=np.bool_)
        is_bucketed = np.bincount(group_of[has_buckets], minlength=groups).astype(np.bool_)
        is_value = np.repeat(is_bucketed[group_of] & ~has_buckets, sizes)
        numbers[is_value] = _bucket_of(numbers[is_value], self.prepare.error)
        # The numbers of a partial are ascending.
        group_of, numbers, counts = merged_pairs(np.repeat(group_of, sizes), numbers, counts)
        encode = (self.prepare.of_values, functools.partial(_encode, _BUCKETS))
        return as_objects(
            encode[kind](numbers[start:end], counts[start:end])
            for kind, (start, end) in zip(is_bucketed.tolist(), segments(group_of, groups), strict=True)
        )


class Quantile(Aggregate):
    """The smallest value that at least this share of the values does not exceed, as `percentile_disc` of SQL.

    Exact up to 256 distinct values per key and window, otherwise with a relative error of at most 1 % (settable).
    """

    name: ClassVar[str] = "quantile"
    can_be_null: ClassVar[bool] = False
    arguments: ClassVar[type[SettingsModel]] = QuantileArguments

    def __init__(self, at: float = 0.5, error: int = ERROR_STEPS // 100) -> None:
        self._at = Fraction(str(at))
        self._error = error
        prepare = PrepareQuantile(error)
        self.columns: tuple[PartialColumn, ...] = (BinaryColumn(f"quantile_{error}", prepare, MergeQuantile(prepare)),)

    def with_arguments(self, arguments: QuantileArguments) -> Sequence[Aggregate]:
        """Return an aggregate for each quantile. They share their partial column."""
        return [Quantile(at, round(arguments.relative_error * ERROR_STEPS)) for at in arguments.at]

    def result_name(self, value: str) -> str:
        """Return for example `price_p50`, and `price_p99_9` for the quantile 0.999."""
        percent = f"{float(self._at * 100):.10f}".rstrip("0").rstrip(".")
        return f"{value}_p{percent}".replace(".", "_")

    def result_type(self, decimals: int) -> pa.DataType:  # noqa: ARG002 - an estimate is not a multiple of the last decimal place
        """Return the type of a number with decimals."""
        return pa.float64()

    def present(self, partials: Partials, decimals: int) -> Results:
        """Return the quantile of each group."""
        listed, scale = partials[self.columns[0].name].tolist(), 10**decimals
        parts = _parts(listed, np.arange(len(listed) + 1))
        return [quantile / scale for first, last in parts for quantile in self._quantiles(listed[first:last])]

    def _quantiles(self, partials: Sequence[bytes]) -> Iterator[float]:
        sizes, numbers, counts = _decode(partials)
        # The ranks of a group follow those of the group before it.
        ranks = np.cumsum(counts)
        ends = ranks[np.cumsum(sizes) - 1]
        share, of = self._at.as_integer_ratio()
        distances = [min(total - 1, total - -(-share * total // of)) for total in np.diff(ends, prepend=0).tolist()]
        found = numbers[np.searchsorted(ranks, ends - np.array(distances, dtype=np.int64))]
        for partial, number in zip(partials, found.tolist(), strict=True):
            yield number if partial[:1] == _VALUES else _value_in(number, self._error)
