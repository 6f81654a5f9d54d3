"""Parses the groupings and numbers of workers that `simulate` and `plan` compare."""

from __future__ import annotations

from collections.abc import Iterable

from skewless.errors import ConfigurationError, unknown

ALL = "all"
MAX_WORKERS = 1024


def candidates_of(groupings: Iterable[str], workers: Iterable[str]) -> tuple[list[str], list[int]]:
    """Parse comma-separated names (or `all`) and numbers; ConfigurationError lists all invalid ones."""
    from skewless.algorithms.grouping import GROUPING_NAMES

    names, numbers = _split(groupings), _split(workers)
    known = (*GROUPING_NAMES, ALL)
    problems = [] if names else ["--grouping: names no grouping"]
    problems += [f"--grouping: {unknown('grouping', name, known)}" for name in names if name not in known]
    problems += [
        f"--workers: {text!r} must be an integer from 1 to {MAX_WORKERS}"
        for text in numbers or [""]
        if not (text.isdecimal() and 1 <= int(text) <= MAX_WORKERS)
    ]
    if problems:
        raise ConfigurationError(*problems)
    return list(GROUPING_NAMES) if ALL in names else names, [int(text) for text in numbers]


def _split(texts: Iterable[str]) -> list[str]:
    """Return the comma-separated parts of all texts, without duplicates, in their order."""
    return list(dict.fromkeys(part.strip() for text in texts for part in text.split(",") if part.strip()))
