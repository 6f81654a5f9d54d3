"""Conversions of a column of fields into keys, values and times: exact, and the same for every record format.

Each takes what a format read (text, or the scalars of JSON) and gives the converted column and, by position, what
could not be converted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from skewless.splitter.fixed_point import FixedPoint, Scalar
from skewless.splitter.merging import Merging
from skewless.splitter.pattern import MARK, Pattern

Unit = Literal["ms", "s", "us", "iso8601"]
Problems = dict[int, str]
"""Position in the column -> reason."""

LARGEST_VALUE = 2**53
"""Bound of fixed-point values: every whole number up to here is also exact as a double (SQL, JSON, Spark)."""
FIRST_INSTANT = -62_135_596_800_000
"""0001-01-01T00:00:00Z in ms: the first instant that SQL timestamps and Python share."""
LAST_INSTANT = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z in ms."""

_TICKS: dict[str, tuple[int, int]] = {"ms": (0, 1), "s": (3, 1), "us": (0, 1000)}
"""Unit -> decimals that make its numbers ticks, ticks per millisecond."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The keys of a column of fields, and what is wrong with them."""

    keys: list[str]
    origins: NDArray[np.intp] | None
    """Position in the column that each key comes from; None: one each."""
    problems: Problems
    """By key."""
    unsearchable: Problems
    """By field: these gave no key."""


class Keys:
    """Turns a column of key fields into keys: a step per setting of `KeySettings`, then a look at the length."""

    def __init__(  # noqa: PLR0913 - by name, and each a setting of its own
        self,
        *,
        strip_prefix: str,
        pattern: str | None,
        lower: bool,
        merging: Merging | None,
        key_bytes: int,
        searched_bytes: int,
    ) -> None:
        self._prefix = strip_prefix
        self._pattern = Pattern(pattern) if pattern is not None else None
        self._lower = lower
        self._merging = merging
        self._key_bytes = key_bytes
        self._searched_bytes = searched_bytes

    def convert(self, column: Sequence[Scalar]) -> KeyColumn:
        """Turn fields into keys."""
        texts = _texts(column)
        if self._prefix:
            texts = [text.removeprefix(self._prefix) for text in texts]
        origins = None
        unsearchable: Problems = {}
        if self._pattern is not None:
            unsearchable = self._unsearchable(texts)
            if unsearchable:
                texts = ["" if i in unsearchable else text for i, text in enumerate(texts)]
            texts, origins = self._pattern.find(texts)
        if self._lower:
            texts = [text.lower() for text in texts]
        if self._merging is not None:
            texts, kept = self._merging.apply(texts)
            if kept is not None:
                origins = kept if origins is None else origins[kept]
        return KeyColumn(texts, origins, self._too_long(texts), unsearchable)

    def _unsearchable(self, texts: list[str]) -> Problems:
        limit = self._searched_bytes
        problems = dict.fromkeys(_longer(texts, limit), f"key field longer than {limit} bytes, too long for a pattern")
        return problems | {i: "key field has U+FDD0, which is no character" for i, t in enumerate(texts) if MARK in t}

    def _too_long(self, keys: list[str]) -> Problems:
        return dict.fromkeys(_longer(keys, self._key_bytes), f"key longer than {self._key_bytes} bytes")


def _longer(texts: list[str], limit: int) -> list[int]:
    """Find the texts of more bytes than `limit`."""
    # A character has at most 4 bytes, so most columns need no look at the bytes.
    if max(map(len, texts), default=0) * 4 <= limit:
        return []
    return [i for i, text in enumerate(texts) if len(text) * 4 > limit and len(text.encode()) > limit]


def _texts(column: Sequence[Scalar]) -> list[str]:
    if set(map(type, column)) <= {str}:
        return column  # type: ignore[return-value]  # the line above is the proof
    return [entry if isinstance(entry, str) else _canonical(entry) for entry in column]


def _canonical(entry: float) -> str:
    """Write a JSON scalar that is no string as JSON does: `5`, `1.5`, `true`."""
    if isinstance(entry, bool):
        return "true" if entry else "false"
    return str(entry)


def values(column: Sequence[Scalar], decimals: int) -> tuple[NDArray[np.int64], Problems]:
    """Turn numbers into fixed-point, rounded half to even."""
    result, failed = FixedPoint(decimals, ROUND_HALF_EVEN, LARGEST_VALUE).convert(column)
    return result, dict.fromkeys(failed, "value is not a number within bounds")


def times(column: Sequence[Scalar], unit: Unit) -> tuple[NDArray[np.int64], Problems]:
    """Turn times into milliseconds since the epoch; what is finer is cut off towards the past."""
    if unit == "iso8601":
        return _iso_times(column)
    decimals, divisor = _TICKS[unit]
    result, failed = FixedPoint(decimals, ROUND_FLOOR, LAST_INSTANT * divisor + divisor - 1).convert(column)
    problems = dict.fromkeys(failed, "time is not a number within bounds")
    result //= divisor
    for i in np.flatnonzero(result < FIRST_INSTANT).tolist():
        problems[i] = "time is not a number within bounds"
    return result, problems


def _iso_times(column: Sequence[Scalar]) -> tuple[NDArray[np.int64], Problems]:
    result = []
    problems: Problems = {}
    # Per entry, because numpy reads neither zones nor all forms of ISO 8601; `fromisoformat` is C.
    for i, entry in enumerate(column):
        try:
            moment = datetime.fromisoformat(entry)  # type: ignore[arg-type]  # a TypeError if it is no text
        except (ValueError, TypeError):
            problems[i] = "time is not ISO 8601"
            result.append(0)
            continue
        since = moment - (_EPOCH if moment.tzinfo else _NAIVE_EPOCH)
        result.append(since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000)
    instants = np.array(result, np.int64)
    for i in np.flatnonzero((instants < FIRST_INSTANT) | (instants > LAST_INSTANT)).tolist():
        problems[i] = "time is not within the years 1 to 9999"
    return instants, problems
