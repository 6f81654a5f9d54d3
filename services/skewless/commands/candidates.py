"""Groupings and numbers of workers to compare, as `simulate` and `plan` are given them."""

from __future__ import annotations

from collections.abc import Iterable

from skewless.errors import ConfigurationError

ALL = "all"
MOST_WORKERS = 1024


def groupings_of(given: Iterable[str]) -> list[str]:
    """Read names parted by commas, or `all`; ConfigurationError for one that there is not."""
    from skewless.algorithms.grouping import GROUPINGS

    names = _parts(given)
    unknown = [name for name in names if name != ALL and name not in GROUPINGS]
    if unknown or not names:
        raise ConfigurationError(
            *(f"--grouping: {name!r} is unknown: choose of {', '.join((*GROUPINGS, ALL))}" for name in unknown or [""])
        )
    return list(GROUPINGS) if ALL in names else names


def workers_of(given: Iterable[str]) -> list[int]:
    """Read numbers of workers parted by commas; ConfigurationError for what is none."""
    numbers = _parts(given)
    wrong = [text for text in numbers if not (text.isdecimal() and 1 <= int(text) <= MOST_WORKERS)]
    if wrong or not numbers:
        raise ConfigurationError(
            *(f"--workers: {text!r} is no whole number of 1 to {MOST_WORKERS}" for text in wrong or [""])
        )
    return [int(text) for text in numbers]


def _parts(given: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(part.strip() for text in given for part in text.split(",") if part.strip()))
