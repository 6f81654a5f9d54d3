"""Converts columns of numbers to fixed-point integers, exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

Scalar = str | int | float | bool
Reread = Callable[[Sequence[int]], Sequence[Scalar]]
"""Returns the entries of a column at these indices as the records contain them: a number that is not an integer as text
with all its digits."""

_NUMBER_CHARACTERS = "0123456789+-.eE"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
"""Numbers and products have all their digits."""
_LARGEST_EXPONENT = 30
"""Larger numbers are beyond every limit. They are not converted to integers, which takes long for a large exponent."""
_FACTOR_CHARACTERS = 1_000
"""Maximum characters of a factor with all its digits. All elements of a list may share one, and each product has the
digits of both."""
_DOUBLE_DIGITS = 15
_LARGEST_EXACT = 2**52
"""A number of at most 15 digits has a double of its own. So has one of less than this many units of its last digit."""
_SAFELY_DOUBLE = 1e15
"""Below it, the text of a double and its shortest decimal form differ by less than half a unit."""


class Converted(NamedTuple):
    """A column of fixed-point integers."""

    numbers: NDArray[np.int64]
    """One per entry. That of an entry that is not a number within the limit is 0."""
    failed: list[int]
    """Indices of the entries that are not numbers within the limit, ascending."""
    rounded: int
    """Number of the other entries that have more decimals than their integers keep."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Converts numbers x to round(x * 10**decimals), for results with an absolute value of at most `limit`.

    An integer or a text is exact, with all its digits. A double has the value of its shortest decimal form, unless
    `reread` returns its text. `rounding` is decimal.ROUND_HALF_EVEN or ROUND_FLOOR.
    """

    decimals: int
    rounding: str
    limit: int

    def convert(self, column: Sequence[Scalar], reread: Reread | None = None) -> Converted:
        """Return the integers of a column."""
        numbers = _numbers(column)
        if numbers is None:
            nothing = Converted(np.zeros(len(column), np.int64), list(range(len(column))), 0)
            return self._convert_each(_entries(column, nothing.failed, reread), nothing)
        if numbers.dtype == np.int64:
            return self._integers(cast("NDArray[np.int64]", numbers))
        certain = self._doubles(cast("NDArray[np.float64]", numbers), column)
        return self._convert_each(_entries(column, certain.failed, reread), certain)

    def convert_products(
        self,
        column: Sequence[Scalar],
        factors: Sequence[Scalar],
        reread: Reread | None = None,
        reread_factors: Reread | None = None,
    ) -> Converted:
        """Return round(x * y * 10**decimals) for each pair.

        The values of numbers are those of `convert`. The product is exact before it is rounded. A text of more than
        1,000 characters fails, and a double whose text is longer has the value of its shortest decimal form.
        """
        column, factors = _without_long(column), _without_long(factors)
        certain = Converted(np.zeros(len(column), np.int64), list(range(len(column))), 0)
        left, right = _as_integers(column), _as_integers(factors)
        if left is not None and right is not None:
            certain = self._small_products(*left, *right)
        remaining = certain.failed
        pairs = zip(_factors(column, remaining, reread), _factors(factors, remaining, reread_factors), strict=True)
        return self._convert_each([_product(*pair) for pair in pairs], certain)

    def _small_products(
        self, x: NDArray[np.int64], x_decimals: int, y: NDArray[np.int64], y_decimals: int
    ) -> Converted:
        """Multiply integers with decimals. Those that failed may have another result.

        A factor may have more digits than its double. The product of the texts differs by less than half a unit, so
        only halves may be rounded differently.
        """
        decimals = x_decimals + y_decimals
        scale, divisor = 10 ** max(0, self.decimals - decimals), 10 ** max(0, decimals - self.decimals)
        is_certain = np.abs(x.astype(np.float64)) * np.abs(y.astype(np.float64)) * scale < _SAFELY_DOUBLE
        quotient, rest = np.divmod(np.where(is_certain, x * y * scale, 0), divisor)
        is_certain &= 2 * rest != divisor
        result: NDArray[np.int64] = np.where(is_certain, quotient + (2 * rest > divisor), 0)
        return Converted(result, np.flatnonzero(~is_certain).tolist(), int(np.count_nonzero(rest[is_certain])))

    def exact(self, entry: Scalar) -> int | None:
        """Convert one entry with decimal arithmetic. This is the reference for the fast conversions.

        Returns None if the entry is not a number within the limit.
        """
        return self._rounded(entry)[0]

    def _rounded(self, entry: Scalar | Decimal | None) -> tuple[int | None, bool]:
        """Return a number in units of the last decimal place, rounded once, and whether it had more digits.

        The number is None if it is not within the limit.
        """
        number = entry if isinstance(entry, Decimal | None) else _as_decimal(entry)
        if number is None or not number.is_finite() or (number and number.adjusted() > _LARGEST_EXPONENT):
            return None, False
        exact = number.scaleb(self.decimals, _EXACT)
        scaled = int(exact.to_integral_value(self.rounding, _EXACT))
        return (scaled, scaled != exact) if -self.limit <= scaled <= self.limit else (None, False)

    def _convert_each(self, entries: Sequence[Scalar | Decimal | None], certain: Converted) -> Converted:
        """Convert the entries that failed in `certain`, with decimal arithmetic."""
        failed, rounded = [], certain.rounded
        for i, entry in zip(certain.failed, entries, strict=True):
            number, is_rounded = self._rounded(entry)
            if number is None:
                failed.append(i)
            else:
                certain.numbers[i] = number
                rounded += is_rounded
        return Converted(certain.numbers, failed, rounded)

    def _integers(self, numbers: NDArray[np.int64]) -> Converted:
        scale = 10**self.decimals
        bound = self.limit // scale
        failed = np.flatnonzero((numbers > bound) | (numbers < -bound))
        numbers[failed] = 0
        return Converted(numbers * scale, failed.tolist(), 0)

    def _doubles(self, numbers: NDArray[np.float64], column: Sequence[Scalar]) -> Converted:
        """Scale and round. Those failed whose result a floating-point error may have changed.

        `column` has the entries whose doubles the numbers are.
        """
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
            if self.rounding == ROUND_HALF_EVEN:
                rounded = nearest
            else:
                # The double of a text with more digits may be an integer that is above its number.
                exact[[i for i in _long_texts(column) if exact[i] and not _has_own_double(column[i])]] = False
                rounded = np.where(exact, nearest, np.floor(product))
        is_certain = exact | is_unambiguous
        result = np.where(is_certain, rounded, 0).astype(np.int64)
        return Converted(result, np.flatnonzero(~is_certain).tolist(), int(np.count_nonzero(is_certain & ~exact)))


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


def _long_texts(column: Sequence[Scalar]) -> Iterable[int]:
    """Return the indices of texts with more digits than all doubles have. All entries are texts, or none is."""
    if not column or not isinstance(column[0], str):
        return ()
    lengths = np.fromiter(map(len, cast("Sequence[str]", column)), np.int64, len(column))
    return np.flatnonzero(lengths > _DOUBLE_DIGITS + 1).tolist()


def _has_own_double(text: Scalar) -> bool:
    """Return whether no other number with as many decimals has the double of this one."""
    digits = str(text).lstrip("+-").replace(".", "", 1)
    # Not of any length: Python refuses to convert very long texts.
    return digits.isdigit() and len(digits) <= _DOUBLE_DIGITS + 1 and int(digits) < _LARGEST_EXACT


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
    """Return the exact number that an entry is; None if it is not a number. It may be infinite."""
    if isinstance(entry, str):
        text = entry.strip()
        return _EXACT.create_decimal(text) if _DECIMAL.fullmatch(text) else None
    if isinstance(entry, bool):
        return None
    return Decimal(entry) if isinstance(entry, int) else Decimal(repr(entry))


def _product(entry: Scalar, factor: Scalar) -> Decimal | None:
    """Return the exact product of two entries; None if one is not a number."""
    left, right = _as_decimal(entry), _as_decimal(factor)
    return None if left is None or right is None else _EXACT.multiply(left, right)


def _without_long(column: Sequence[Scalar]) -> Sequence[Scalar]:
    """Return a column with an empty text, which is not a number, in place of each text that is too long."""
    types = set(map(type, column))
    if str not in types or (types == {str} and max(map(len, cast("Sequence[str]", column))) <= _FACTOR_CHARACTERS):
        return column
    return ["" if isinstance(entry, str) and len(entry) > _FACTOR_CHARACTERS else entry for entry in column]


def _factors(column: Sequence[Scalar], indices: Sequence[int], reread: Reread | None) -> Sequence[Scalar]:
    """Return the entries at these indices, read again as `_entries`, except those with long texts."""
    entries = _entries(column, indices, reread)
    is_long = (isinstance(entry, str) and len(entry) > _FACTOR_CHARACTERS for entry in entries)
    return [column[i] if long else entry for i, entry, long in zip(indices, entries, is_long, strict=True)]


def _entries(column: Sequence[Scalar], indices: Sequence[int], reread: Reread | None) -> Sequence[Scalar]:
    """Return the entries at these indices, read again if a double among them may have lost digits."""
    entries = [column[i] for i in indices]
    return reread(indices) if reread is not None and float in map(type, entries) else entries
