"""Programs of Debian packages. Tests that run as root install the packages that are missing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = os.geteuid() == 0
LOCK = Path(tempfile.gettempdir(), "skewless-tests-apt.lock")
"""Test processes that run in parallel install packages one after another."""
LOCK_S = 300.0
"""Time limit in s of the wait for a process outside the tests that uses apt-get or dpkg."""
EVERY_S = 0.5
LOCKED = "Could not get lock"


def find_program(name: str, *packages: str) -> str:
    """Return the path of a program of Debian packages. As root, installs them if the program is missing.

    Raises FileNotFoundError if the program is missing and cannot be installed.
    """
    if program := _path_of(name):
        return program
    reason = "only root can install it, with apt-get"
    if ROOT and shutil.which("apt-get") is not None:
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            reason = "" if _path_of(name) else _install(packages)
    if program := _path_of(name):
        return program
    raise FileNotFoundError(f"{name} is missing: install the Debian package {' and '.join(packages)} ({reason})")


def _path_of(name: str) -> str | None:
    folders = [os.environ["PATH"], "/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin")))]
    program = shutil.which(name, path=os.pathsep.join(folders))
    return str(Path(program).resolve()) if program else None


def _install(packages: Sequence[str]) -> str:
    """Install packages, and return the end of the errors of apt-get."""
    # Without fsync, which takes most of the time of an installation on a busy disk.
    install = ["install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Options::=--force-unsafe-io", *packages]
    done = _run(*install)
    if done.returncode:
        # A slim container has no package lists, and old lists name versions that no longer exist.
        _run("update", "-qq")
        done = _run(*install)
    return done.stderr[-1000:]


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run apt-get. Waits while another process has a lock: apt-get itself waits for one of its locks only."""
    # No server of a package is started: tests run servers of their own. See invoke-rc.d(8).
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    deadline = time.monotonic() + LOCK_S
    while True:
        # In a session of its own: a test run that is ended would otherwise leave packages half installed.
        done = subprocess.run(
            ["apt-get", "-o", f"DPkg::Lock::Timeout={LOCK_S:.0f}", *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        if done.returncode == 0 or LOCKED not in done.stderr or time.monotonic() > deadline:
            return done
        time.sleep(EVERY_S)
