"""Groupings and numbers of workers to compare, as `simulate` and `plan` are given them."""

from __future__ import annotations

from collections.abc import Iterable

from skewless.errors import ConfigurationError, unknown

ALL = "all"
MOST_WORKERS = 1024


def candidates_of(groupings: Iterable[str], workers: Iterable[str]) -> tuple[list[str], list[int]]:
    """Read names (or `all`) and numbers, parted by commas; ConfigurationError lists all that are none."""
    from skewless.algorithms.grouping import GROUPINGS

    names, numbers = _parts(groupings), _parts(workers)
    wrong = [] if names else ["--grouping: names none"]
    wrong += [
        f"--grouping: {unknown('grouping', name, (*GROUPINGS, ALL))}" for name in names if name not in {*GROUPINGS, ALL}
    ]
    wrong += [
        f"--workers: {text!r} is no whole number of 1 to {MOST_WORKERS}"
        for text in numbers or [""]
        if not (text.isdecimal() and 1 <= int(text) <= MOST_WORKERS)
    ]
    if wrong:
        raise ConfigurationError(*wrong)
    return list(GROUPINGS) if ALL in names else names, [int(text) for text in numbers]


def _parts(given: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(part.strip() for text in given for part in text.split(",") if part.strip()))
