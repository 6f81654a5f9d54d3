"""Parses the groupings and numbers of workers that `simulate` and `plan` compare."""

from __future__ import annotations

from collections.abc import Iterable

from skewless.errors import ConfigurationError


def candidates_of(groupings: Iterable[str], workers: Iterable[str]) -> tuple[list[str], list[int]]:
    """Parse comma-separated names (or `all`) and numbers; ConfigurationError lists all invalid ones."""
    from skewless.lab.simulation import candidates

    try:
        return candidates.candidates_of(_split(groupings), _split(workers))
    except ConfigurationError as error:
        raise ConfigurationError(*(f"--{problem}" for problem in error.problems)) from None


def _split(texts: Iterable[str]) -> list[str]:
    """Return the comma-separated parts of all texts."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]
