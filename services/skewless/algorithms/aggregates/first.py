"""Value of the first tuple by event time."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.aggregates.base import Aggregate, Results, in_source_unit
from skewless.algorithms.aggregates.partial_column import Int128Column, PartialColumn, Partials, Tuples

_SIGN_BIT = np.int64(-(2**63))


def time_and_value(tuples: Tuples) -> NDArray[np.int64]:
    """Return one 128-bit number per tuple: the order of these numbers is that of (time, value)."""
    # The low word of a 128-bit number is unsigned. Adding 2^63 to signed numbers keeps their order.
    return np.stack((tuples.values ^ _SIGN_BIT, tuples.times), axis=1)


def value_in(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the values of numbers of `time_and_value`."""
    values: NDArray[np.int64] = numbers[:, 0] ^ _SIGN_BIT
    return values


class First(Aggregate):
    """Value of the first tuple by event time; the smallest one if several tuples have this time."""

    name: ClassVar[str] = "first"
    columns: tuple[PartialColumn, ...] = (Int128Column("first", time_and_value, "min"),)

    def present(self, partials: Partials, decimals: int) -> Results:
        """Return the values."""
        return in_source_unit(value_in(partials[self.columns[0].name]), decimals)
