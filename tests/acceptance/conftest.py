"""What acceptance tests may ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import skewless


@pytest.fixture(autouse=True)
def _children_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that are started by tests import the package that the tests import."""
    here = str(Path(skewless.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH")))))
