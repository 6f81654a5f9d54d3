"""Marker of the tests that `make test` leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

COLLECTED = pytest.StashKey[list[pytest.Item]]()
"""All collected tests, also those that the run leaves out."""


def thorough_except(chosen: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Return parameters of which `make test` has the chosen ones only."""
    kept = list(chosen)
    return [value if value in kept else _thorough(value) for value in values]


def _thorough(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.thorough)
