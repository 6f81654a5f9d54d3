"""External tools that single tests need."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from helpers.debian import find_program


def unavailable(what: str) -> NoReturn:
    """Skip the test if a tool is missing; fail in CI, where all tools must exist."""
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def kcat() -> str:
    """Find kcat, or install its Debian package where this is allowed."""
    return _program("kcat", "kcat")


def chromium() -> str:
    """Find Chromium, or install its Debian package where this is allowed."""
    return _program("chromium", "chromium")


def prometheus() -> str:
    """Find Prometheus, or install its Debian package where this is allowed."""
    return _program("prometheus", "prometheus")


def promtool() -> str:
    """Find promtool, which is in the package of Prometheus."""
    return _program("promtool", "prometheus")


def _program(name: str, package: str) -> str:
    try:
        return find_program(name, package)
    except FileNotFoundError as error:
        unavailable(str(error))
