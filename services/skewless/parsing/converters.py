"""Converts a column of fields to texts, values or times: exactly, and in the same way for every record format.

Each conversion takes text or scalars of JSON. It returns the converted column and, by index, what is wrong with invalid
entries, such as `is not ISO 8601`. The caller adds the field before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.parsing.fixed_point import FixedPoint, Reread, Scalar
from skewless.times import EPOCH, FIRST_INSTANT, LAST_INSTANT

Unit = Literal["ms", "s", "us", "ns", "iso8601"]
Problems = dict[int, str]
"""Maps the index of an invalid entry or record to what is wrong with it."""

LARGEST_VALUE = 2**63 - 1
"""Maximum fixed-point value: partials have 64-bit integers."""

_TICKS: dict[Unit, tuple[int, int]] = {"ms": (0, 1), "s": (3, 1), "us": (0, 1000), "ns": (0, 1_000_000)}
"""Maps a unit to the decimals of its fixed-point numbers, and to how many of these make a millisecond."""
_NAIVE_EPOCH = EPOCH.replace(tzinfo=None)


def longer(texts: list[str], limit: int) -> list[int]:
    """Return the indices of the texts with more than `limit` bytes of UTF-8."""
    # A character has at most 4 bytes, so most columns need not be encoded.
    if max(map(len, texts), default=0) * 4 <= limit:
        return []
    return [i for i, text in enumerate(texts) if len(text) * 4 > limit and len(text.encode()) > limit]


def texts_of(column: Sequence[Scalar]) -> list[str]:
    """Return fields as texts: a JSON number or boolean as JSON text, `5`, `1.5`, `true`."""
    if set(map(type, column)) <= {str}:
        return column  # type: ignore[return-value]  # proven by the line above
    return list(map(text_of, column))


def text_of(entry: Scalar) -> str:
    """Return a field as text."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, bool):
        return "true" if entry else "false"
    return str(entry)


def values(
    column: Sequence[Scalar], decimals: int, reread: Reread | None = None
) -> tuple[NDArray[np.int64], Problems, int]:
    """Convert numbers to fixed-point numbers, rounded half to even. Returns also how many of them were rounded."""
    result, failed, rounded = FixedPoint(decimals, ROUND_HALF_EVEN, LARGEST_VALUE).convert(column, reread)
    return result, dict.fromkeys(failed, "is not a number within bounds"), rounded


def products(
    column: Sequence[Scalar],
    factors: Sequence[Scalar],
    decimals: int,
    reread: Reread | None = None,
    reread_factors: Reread | None = None,
) -> tuple[NDArray[np.int64], Problems, int]:
    """Multiply two columns of numbers as decimals, and convert the products as `values`, rounded once."""
    fixed = FixedPoint(decimals, ROUND_HALF_EVEN, LARGEST_VALUE)
    result, failed, rounded = fixed.convert_products(column, factors, reread, reread_factors)
    return result, dict.fromkeys(failed, "is not a product of two numbers within bounds"), rounded


def texts(column: Sequence[Scalar], limit: int) -> tuple[pa.DictionaryArray, Problems]:
    """Convert scalars to texts of at most `limit` bytes."""
    entries = texts_of(column)
    too_long = longer(entries, limit)
    problems = dict.fromkeys(too_long, f"is longer than {limit} bytes")
    if too_long:
        entries = ["" if i in problems else text for i, text in enumerate(entries)]
    return pa.array(entries, pa.string()).dictionary_encode(), problems


def is_missing(entry: Scalar | None) -> bool:
    """Return whether a field is null, absent or empty."""
    return entry is None or entry == ""


def times(column: Sequence[Scalar], unit: Unit) -> tuple[NDArray[np.int64], Problems]:
    """Convert times to milliseconds since the epoch, rounded down."""
    if unit == "iso8601":
        return _iso_times(column)
    decimals, divisor = _TICKS[unit]
    largest = min(LAST_INSTANT * divisor + divisor - 1, LARGEST_VALUE)
    result, failed, _ = FixedPoint(decimals, ROUND_FLOOR, largest).convert(column)
    problems = dict.fromkeys(failed, "is not a number within bounds")
    problems |= {i: f"is text in ISO 8601, but its unit is {unit}" for i in failed if _is_iso(column[i])}
    result //= divisor
    for i in np.flatnonzero(result < FIRST_INSTANT).tolist():
        problems[i] = "is not a number within bounds"
    return result, problems


def coarser_units(unit: Unit) -> dict[Unit, int]:
    """Return the longer units of numbers, with how many of `unit` each is."""
    if unit == "iso8601":
        return {}
    lengths = {each: 10**9 * 10**decimals // divisor for each, (decimals, divisor) in _TICKS.items()}
    return {each: length // lengths[unit] for each, length in lengths.items() if length > lengths[unit]}


def dates_with_times(dates: Sequence[Scalar], times_of_day: Sequence[Scalar]) -> list[Scalar]:
    """Return each date with its time of day as one text in ISO 8601."""
    return [f"{date} {time_of_day}" for date, time_of_day in zip(dates, times_of_day, strict=True)]


_ISO = re.compile(
    r"(\d{4}-?\d\d-?\d\d|\d{4}-?W\d\d(-?\d)?)"
    r"(\D\d\d(:?\d\d(:?\d\d([.,]\d+)?)?)?([Zz]|[+-]\d\d(:?[0-5]\d(:?[0-5]\d(\.\d+)?)?)?)?)?"
)
"""A time whose fraction is one of seconds. `fromisoformat` reads 10:30.5, half past a minute, as 10:30:00.500."""


def _is_iso(entry: Scalar) -> bool:
    return isinstance(entry, str) and not _iso_times([entry])[1]


def _iso_times(column: Sequence[Scalar]) -> tuple[NDArray[np.int64], Problems]:
    result = []
    problems: Problems = {}
    # Per entry, because numpy supports neither time zones nor all forms of ISO 8601. `fromisoformat` is fast C code.
    for i, entry in enumerate(column):
        text: str = entry  # type: ignore[assignment]  # another type raises TypeError
        try:
            moment = datetime.fromisoformat(text)
        except (ValueError, TypeError):
            is_number = FixedPoint(0, ROUND_FLOOR, LARGEST_VALUE).exact(entry) is not None
            problems[i] = "is a number, but its unit is iso8601" if is_number else "is not ISO 8601"
            result.append(0)
            continue
        length = len(text)
        # The usual forms need no second look: with two digits of seconds, of minutes without more, and dates. A zone
        # with minutes does: `fromisoformat` also reads +05:99.
        is_usual = (
            text[13] == ":" == text[16]
            and (
                length == 19
                or text[19] in "Zz"
                or (text[19] in ".,+-" and text[-6] in "+-" and text[-3] == ":" and text[-2] < "6")
                or (text[19] in ".," and (text[-1] in "Zz" or text[20:].isdigit()))
            )
            if length >= 19
            else length == 10 or (length == 16 and text[13] == ":")
        )
        if not is_usual and not _ISO.fullmatch(text):
            problems[i] = "is not ISO 8601"
        elapsed = moment - (EPOCH if moment.tzinfo else _NAIVE_EPOCH)
        result.append(elapsed.days * 86_400_000 + elapsed.seconds * 1000 + elapsed.microseconds // 1000)
    instants = np.array(result, np.int64)
    for i in np.flatnonzero((instants < FIRST_INSTANT) | (instants > LAST_INSTANT)).tolist():
        problems[i] = "is not within the years 1 to 9999"
    return instants, problems
