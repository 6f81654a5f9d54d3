"""Results in the unit of the source that are exact to the last digit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms import int128
from skewless.algorithms.int128 import Int128

_SAFE_IN_DOUBLE = 10**15
"""The shortest form of a double has the digits of each decimal number of at most 15 digits."""
_EXACT = Context(prec=60)


@dataclass(frozen=True, slots=True)
class FixedPointResults:
    """Fixed-point numbers, one per group: the result is the number divided by 10 to the power of `decimals`."""

    numbers: NDArray[np.int64] | Int128
    """64-bit integers, or 128-bit integers as in `int128`."""
    decimals: int
    ends: NDArray[np.int64] | None = None
    """If results are lists: the end of each list in `numbers`. The lists follow each other."""

    def to_list(self) -> list[Any]:
        """Return the results as Python numbers whose JSON has all their digits. An integer has no decimal point."""
        integers = self._integers()
        scale = 10**self.decimals
        if scale == 1:
            return self._in_lists(integers)
        return self._in_lists(
            [
                number / scale if -_SAFE_IN_DOUBLE < number < _SAFE_IN_DOUBLE else self._decimal(number)
                for number in integers
            ]
        )

    def to_texts(self) -> list[Any]:
        """Return the results as text with all decimal places, such as `12.50`."""
        return self._in_lists([f"{self._decimal(number):f}" for number in self._integers()])

    def to_arrow(self) -> pa.Array:
        """Return the results as an array of int64 (64-bit integers without decimals) or decimals, or of lists."""
        if self.numbers.ndim == 1 and self.decimals == 0:
            array = pa.array(self.numbers)
        else:
            wide = int128.widen(self.numbers) if self.numbers.ndim == 1 else self.numbers
            array = int128.to_arrow(wide, self.decimals)
        if self.ends is None:
            return array
        return pa.ListArray.from_arrays(pa.array(np.concatenate(([0], self.ends)), pa.int32()), array)

    def _in_lists(self, items: list[Any]) -> list[Any]:
        if self.ends is None:
            return items
        return [items[start:end] for start, end in itertools.pairwise([0, *self.ends.tolist()])]

    def _integers(self) -> list[int]:
        if self.numbers.ndim > 1:
            return int128.to_ints(self.numbers)
        integers: list[int] = self.numbers.tolist()
        return integers

    def _decimal(self, number: int) -> Decimal:
        return Decimal(number).scaleb(-self.decimals, _EXACT)
