"""External tools that single tests need."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NoReturn

import pytest

APT_S = 240


def unavailable(what: str) -> NoReturn:
    """Skip the test if a tool is missing; fail in CI, where all tools must exist."""
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def kcat() -> str:
    """Find kcat, or install its Debian package where this is allowed."""
    apt = shutil.which("apt-get")
    if shutil.which("kcat") is None and apt is not None and os.geteuid() == 0:
        for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "kcat"]):
            command = [apt, "-o", "DPkg::Lock::Timeout=120", *step]
            ran = subprocess.run(
                command,
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                timeout=APT_S,
                check=False,
            )
            if ran.returncode:
                unavailable(f"apt-get cannot install kcat: {ran.stderr}")
    return shutil.which("kcat") or unavailable("kcat is not installed: on Debian, apt-get install kcat")
