"""Arithmetic mean of the values in a group."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms import int128
from skewless.algorithms.aggregates.base import COUNT, SUM, Aggregate, Results
from skewless.algorithms.aggregates.count import Count
from skewless.algorithms.aggregates.partial_column import PartialColumn, Partials
from skewless.algorithms.aggregates.sum import Sum


class Mean(Aggregate):
    """Arithmetic mean of the values. Stored as sum and count, so that partial results merge."""

    name: ClassVar[str] = "mean"
    columns: tuple[PartialColumn, ...] = (SUM, COUNT)
    can_be_null: ClassVar[bool] = False

    @property
    def parts(self) -> tuple[Aggregate, ...]:
        """Dividend and divisor."""
        return (Sum(), Count())

    def result_type(self, decimals: int) -> pa.DataType:  # noqa: ARG002 - a mean of integers has decimals, too
        """Return the type of a number with decimals."""
        return pa.float64()

    def present(self, partials: Partials, decimals: int) -> Results:
        """Return the double that is nearest to the quotient of sum and count."""
        sums, counts = partials[SUM.name], partials[COUNT.name]
        scale = 10**decimals
        means: NDArray[np.float64] = sums[:, 0] / (counts * float(scale))
        # The quotient of two integers up to 2^53 is rounded once. Larger ones would be rounded before the division.
        is_large = (sums[:, 1] != sums[:, 0] >> 63) | (sums[:, 0] > 2**53) | (sums[:, 0] < -(2**53))
        large = np.flatnonzero(is_large | (counts > 2**53 // scale))
        totals, divisors = int128.to_ints(sums[large]), counts[large].tolist()
        # Python divides integers of any size exactly, and rounds once.
        means[large] = [total / (count * scale) for total, count in zip(totals, divisors, strict=True)]
        return means
