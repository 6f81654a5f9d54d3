"""Sample standard deviation of the values in a group."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.base import COUNT, SUM, Aggregate, Results
from skewless.algorithms.aggregates.partial_column import Int128Column, PartialColumn, Partials, Tuples
from skewless.algorithms.int128 import to_ints

# A value is high * 2^32 + low with -2^31 <= low < 2^31, so that each product of two parts fits into 64 bits.


def _high(values: NDArray[np.int64]) -> NDArray[np.int64]:
    high: NDArray[np.int64] = (values >> 32) + ((values >> 31) & 1)
    return high


def _low(values: NDArray[np.int64]) -> NDArray[np.int64]:
    low: NDArray[np.int64] = (values << 32) >> 32
    return low


def _high_squares(tuples: Tuples) -> NDArray[np.int64]:
    return _high(tuples.values) ** 2


def _products(tuples: Tuples) -> NDArray[np.int64]:
    return _high(tuples.values) * _low(tuples.values)


def _low_squares(tuples: Tuples) -> NDArray[np.int64]:
    return _low(tuples.values) ** 2


HIGH_SQUARES = Int128Column("high_squares", _high_squares)
PRODUCTS = Int128Column("products", _products)
LOW_SQUARES = Int128Column("low_squares", _low_squares)
"""Their sums are the sum of the squares: high_squares * 2^64 + products * 2^33 + low_squares."""


class Stddev(Aggregate):
    """Sample standard deviation of the values, as `stddev` of SQL. null for one value."""

    name: ClassVar[str] = "stddev"
    columns: tuple[PartialColumn, ...] = (COUNT, SUM, HIGH_SQUARES, PRODUCTS, LOW_SQUARES)
    can_be_null: ClassVar[bool] = True

    def result_type(self, decimals: int) -> pa.DataType:  # noqa: ARG002 - not a multiple of the last decimal place
        """Return the type of a number with decimals."""
        return pa.float64()

    def present(self, partials: Partials, decimals: int) -> Results:
        """Return the double that is nearest to the square root of the variance."""
        counts = partials[COUNT.name].tolist()
        columns = (to_ints(partials[column.name]) for column in (SUM, HIGH_SQUARES, PRODUCTS, LOW_SQUARES))
        rows = zip(counts, *columns, strict=True)
        return [
            _stddev(count, total, (high << 64) + (mixed << 33) + low, decimals)
            for count, total, high, mixed, low in rows
        ]


def _stddev(count: int, total: int, squares: int, decimals: int) -> float | None:
    if count < 2:
        return None
    return _square_root(count * squares - total**2, count * (count - 1) * 10 ** (2 * decimals))


def _square_root(numerator: int, denominator: int) -> float:
    """Return the double that is nearest to the square root of a fraction."""
    # The integer root has at least 55 bits. Its last bit is set if the root is not exact, so that the division, which
    # rounds to 53 bits, rounds in the right direction (round to odd).
    shift = max(0, (112 + denominator.bit_length() - numerator.bit_length()) // 2)
    quotient, remainder = divmod(numerator << 2 * shift, denominator)
    root = math.isqrt(quotient)
    return (root | (remainder > 0 or root * root != quotient)) / (1 << shift)
