"""Fixtures of the acceptance tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import skewless


@pytest.fixture(autouse=True)
def _children_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make processes that tests start import the same package as the tests."""
    here = str(Path(skewless.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH")))))
