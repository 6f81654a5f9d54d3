"""Checks the groupings and numbers of workers that are compared."""

from __future__ import annotations

from collections.abc import Iterable

from skewless.algorithms.grouping import GROUPING_NAMES
from skewless.errors import ConfigurationError, unknown

ALL = "all"
MAX_WORKERS = 1024


def candidates_of(
    groupings: Iterable[str], workers: Iterable[str | int], *, prefix: str = ""
) -> tuple[list[str], list[int]]:
    """Return the names of groupings, of which `all` is every one, and the numbers of workers, each once.

    A text may have several, separated by commas. Raises ConfigurationError with all invalid ones; `prefix` is that of
    options.
    """
    names, numbers = _parts(groupings), _parts(workers)
    known = (*GROUPING_NAMES, ALL)
    problems = [] if names else [f"{prefix}grouping: names no grouping"]
    problems += [f"{prefix}grouping: {unknown('grouping', name, known)}" for name in names if name not in known]
    problems += [
        f"{prefix}workers: {text!r} must be an integer from 1 to {MAX_WORKERS}"
        for text in numbers or [""]
        if not (text.isdecimal() and len(text) <= len(str(MAX_WORKERS)) and 1 <= int(text) <= MAX_WORKERS)
    ]
    if problems:
        raise ConfigurationError(*problems)
    return list(GROUPING_NAMES) if ALL in names else names, [int(text) for text in numbers]


def _parts(values: Iterable[str | int]) -> list[str]:
    """Return the parts of all texts that commas separate, each once."""
    parts = (part.strip() for value in values for part in str(value).split(","))
    return list(dict.fromkeys(filter(None, parts)))
