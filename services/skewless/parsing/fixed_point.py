"""Converts columns of numbers to fixed-point integers, exactly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import cast

import numpy as np
from numpy.typing import NDArray

Scalar = str | int | float | bool

_NUMBER_CHARACTERS = "0123456789+-.eE"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# A double has at most 17 significant digits, so 60 digits are exact for all results within bounds.
_CONTEXT = Context(prec=60, Emin=-10_000, Emax=10_000, traps=[])
_LARGEST_FACTOR = 10**30
"""Larger factors are invalid. The product of two numbers within it is exact with 60 digits."""
_SAFELY_DOUBLE = 1e15
"""Below it a decimal of at most 15 digits is the shortest form of the double that is nearest to it."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Converts numbers x to round(x * 10**decimals), for results with an absolute value of at most `limit`.

    An integer is exact. A number with a fraction or an exponent is the IEEE double nearest to its text (RFC 8259,
    section 6), with the value of its shortest decimal form. `rounding` is decimal.ROUND_HALF_EVEN or ROUND_FLOOR.
    """

    decimals: int
    rounding: str
    limit: int

    def convert(self, column: Sequence[Scalar]) -> tuple[NDArray[np.int64], list[int]]:
        """Return the results, and the indices of entries that are not numbers within the limit. Their result is 0."""
        numbers = _numbers(column)
        if numbers is None:
            return self._convert_each(column, range(len(column)), np.zeros(len(column), np.int64))
        if numbers.dtype == np.int64:
            return self._integers(cast("NDArray[np.int64]", numbers))
        result, uncertain = self._doubles(cast("NDArray[np.float64]", numbers))
        return self._convert_each(column, uncertain, result)

    def convert_products(
        self, column: Sequence[Scalar], factors: Sequence[Scalar]
    ) -> tuple[NDArray[np.int64], list[int]]:
        """Return round(x * y * 10**decimals) for each pair, and the indices of pairs without a result. It is 0 there.

        Numbers with a fraction have the value of their shortest decimal form. The product is exact before it is
        rounded.
        """
        result = np.zeros(len(column), np.int64)
        left, right = _as_integers(column), _as_integers(factors)
        if left is None or right is None:
            remaining: Iterable[int] = range(len(column))
        else:
            (x, x_decimals), (y, y_decimals) = left, right
            is_small = np.abs(x.astype(np.float64)) * np.abs(y.astype(np.float64)) < _SAFELY_DOUBLE
            scaled = self._rescaled(np.where(is_small, x * y, 0), x_decimals + y_decimals)
            remaining = np.flatnonzero(~is_small).tolist() if scaled is not None else range(len(column))
            result = result if scaled is None else scaled
        failed = []
        for i in remaining:
            number = self._exact_product(column[i], factors[i])
            if number is None:
                failed.append(i)
            else:
                result[i] = number
        return result, failed

    def _rescaled(self, products: NDArray[np.int64], decimals: int) -> NDArray[np.int64] | None:
        """Round products with this many decimals to the decimals of the result. None if they might not fit."""
        if decimals <= self.decimals:
            scale = 10 ** (self.decimals - decimals)
            return products * scale if _SAFELY_DOUBLE * scale < self.limit else None
        divisor = 10 ** (decimals - self.decimals)
        quotient, rest = np.divmod(products, divisor)
        is_up = (2 * rest > divisor) | ((2 * rest == divisor) & (quotient % 2 == 1))
        rounded: NDArray[np.int64] = quotient + is_up
        return rounded

    def _exact_product(self, entry: Scalar, factor: Scalar) -> int | None:
        """Multiply two entries with decimal arithmetic."""
        numbers = [_as_decimal(entry), _as_decimal(factor)]
        if numbers[0] is None or numbers[1] is None:
            return None
        product = _CONTEXT.multiply(numbers[0], numbers[1]).scaleb(self.decimals, _CONTEXT)
        if not product.is_finite() or abs(product) > 2 * self.limit:
            return None
        scaled = int(product.to_integral_value(self.rounding, _CONTEXT))
        return scaled if -self.limit <= scaled <= self.limit else None

    def exact(self, entry: Scalar) -> int | None:
        """Convert one entry with decimal arithmetic. This is the reference for the fast conversions.

        Returns None if the entry is not a number within the limit.
        """
        number = read_number(entry.strip()) if isinstance(entry, str) else entry
        if number is None or isinstance(number, bool):
            return None
        if isinstance(number, int):
            scaled = number * 10**self.decimals
        else:
            shortest = Decimal(repr(number)).scaleb(self.decimals, _CONTEXT)
            if not shortest.is_finite() or abs(shortest) > 2 * self.limit:
                return None
            scaled = int(shortest.to_integral_value(self.rounding, _CONTEXT))
        return scaled if -self.limit <= scaled <= self.limit else None

    def _convert_each(
        self, column: Sequence[Scalar], indices: Iterable[int], result: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], list[int]]:
        """Convert the entries at `indices` into `result`. Returns it with the indices of invalid entries."""
        failed = []
        for i in indices:
            number = self.exact(column[i])
            if number is None:
                failed.append(i)
            else:
                result[i] = number
        return result, failed

    def _integers(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
        scale = 10**self.decimals
        bound = self.limit // scale
        failed = np.flatnonzero((numbers > bound) | (numbers < -bound))
        numbers[failed] = 0
        return numbers * scale, failed.tolist()

    def _doubles(self, numbers: NDArray[np.float64]) -> tuple[NDArray[np.int64], list[int]]:
        """Scale and round. The second result lists the indices whose result a floating-point error may have changed."""
        with np.errstate(over="ignore", invalid="ignore"):
            scale = 10.0**self.decimals
            product = numbers * scale
            nearest = np.rint(product)
            exact = (nearest / scale == numbers) & (np.abs(nearest) < min(_SAFELY_DOUBLE, self.limit))
            # The result of half-even changes at halves, that of floor at integers: both are multiples of one half.
            distance_to_half = np.abs(2 * product - np.rint(2 * product))
            is_unambiguous = (np.abs(product) < min(_SAFELY_DOUBLE, self.limit)) & (
                distance_to_half > np.abs(product) * 2.0**-49
            )
            rounded = nearest if self.rounding == ROUND_HALF_EVEN else np.where(exact, nearest, np.floor(product))
        is_certain = exact | is_unambiguous
        return np.where(is_certain, rounded, 0).astype(np.int64), np.flatnonzero(~is_certain).tolist()


def _numbers(column: Sequence[Scalar]) -> NDArray[np.int64] | NDArray[np.float64] | None:
    """Return a column as int64 (integers only) or float64 (integers and floats).

    Returns None if the entries must be converted one by one.
    """
    types = set(map(type, column))
    try:
        if types <= {int}:
            return np.array(column, np.int64)
        if types <= {int, float}:
            return np.array(column, np.float64)
        if types == {str}:
            return _text_numbers(cast("Sequence[str]", column))
    except (ValueError, OverflowError):
        return None
    return None


def _text_numbers(texts: Sequence[str]) -> NDArray[np.int64] | NDArray[np.float64] | None:
    # int() and float() also accept spaces, underscores, digits of other scripts, "nan" and "inf".
    joined = "".join(texts)
    if not (joined.isascii() and joined.isdigit()) and joined.strip(_NUMBER_CHARACTERS):
        return None
    try:
        return np.array(list(map(int, texts)), np.int64)
    except ValueError:
        return np.array(list(map(float, texts)), np.float64)


def read_number(text: str) -> int | float | None:
    """Return the number that a text is, exactly or the nearest double; None if it is not a JSON-like number."""
    try:
        if _INTEGER.fullmatch(text):
            return int(text)
    except ValueError:  # Python rejects integers of more than 4,300 digits, which are out of bounds anyway.
        return None
    return float(text) if _DECIMAL.fullmatch(text) else None


_EXACT_DECIMALS = (0, 2, 4, 6)


def _as_integers(column: Sequence[Scalar]) -> tuple[NDArray[np.int64], int] | None:
    """Return a column as integers and their number of decimals, if it has the same few decimals everywhere."""
    numbers = _numbers(column)
    if numbers is None:
        return None
    if numbers.dtype == np.int64:
        return cast("NDArray[np.int64]", numbers), 0
    with np.errstate(over="ignore", invalid="ignore"):
        for decimals in _EXACT_DECIMALS:
            nearest = np.rint(numbers * 10.0**decimals)
            if np.all((nearest / 10.0**decimals == numbers) & (np.abs(nearest) < _SAFELY_DOUBLE)):
                return nearest.astype(np.int64), decimals
    return None


def _as_decimal(entry: Scalar) -> Decimal | None:
    number = read_number(entry.strip()) if isinstance(entry, str) else entry
    if number is None or isinstance(number, bool) or abs(number) > _LARGEST_FACTOR:
        return None
    return Decimal(number) if isinstance(number, int) else Decimal(repr(number))
