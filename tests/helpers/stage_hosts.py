"""Hosts that start stages for all tests of a test process, so that the code of the stages is imported once.

A host runs the command line of `skewless run` in a process of its own for each stage, as `skewless up` does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import WAIT_S
from skewless import topology
from skewless.lab.local import child_process, supervisor
from skewless.lab.local.stage_host import HostedProcess, StageHost, modules_of

TESTS = Path(__file__).parents[1]
FAULTS = TESTS / "chaos" / "faults"
"""Folder on a process's PYTHONPATH that adds fault points to it."""


class ArmedHost(StageHost):
    """Starts processes with fault points. Their tokens are files `<folder of the pipeline file>/<name>.<point>`."""

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], *, log: Path) -> HostedProcess:
        folder = Path(arguments[arguments.index("--file") + 1]).parent
        return super().start(name, arguments, {**environment, "SKEWLESS_TEST_FAULTS": str(folder / name)}, log=log)


MODULES = (*modules_of(topology.STAGES), "helpers.numba_target")
"""What the processes of all stages import. A router loads compiled code when it starts."""


@functools.cache
def stage_host() -> StageHost:
    """Return the host of this test process."""
    host = StageHost(MODULES, log=_log("host"), environment=_environment())
    atexit.register(host.close)
    return host


@functools.cache
def armed_host() -> StageHost:
    """Return the host of this test process whose stages have fault points."""
    environment = _environment(FAULTS) | {"SKEWLESS_TEST_FAULTS": ""}
    host = ArmedHost(MODULES, log=_log("armed-host"), environment=environment)
    atexit.register(host.close)
    return host


@contextlib.contextmanager
def hosted(
    file: Path, *command: str, log: Path, environment: Mapping[str, str] = os.environ
) -> Iterator[HostedProcess]:
    """Run a command with a pipeline file, such as `run splitter`, until the end of the block."""
    process = stage_host().start("skewless", [*command, "--file", str(file)], environment, log=log)
    try:
        yield process
    finally:
        child_process.stop(process)


def ended(file: Path, *command: str) -> tuple[int, str]:
    """Run a command with a pipeline file until it ends. Returns its exit code and what it printed."""
    log = file.with_suffix(".log")
    log.unlink(missing_ok=True)
    with hosted(file, *command, log=log) as process:
        return process.wait(WAIT_S), log.read_text()


class _SharedHost:
    """Stands for the host that a supervisor would start for itself."""

    def __init__(self, modules: Sequence[str], *, log: Path) -> None:
        pass

    def start(self, *process: Any, log: Path) -> HostedProcess:
        return stage_host().start(*process, log=log)

    def close(self) -> None:
        """Do nothing: other tests need the host."""


def share_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `skewless up` in this test process start its stages by the host of all tests, and not by one of its own."""
    stage_host().connect()  # the runs of the Python API have threads of their own, which end before the host must
    monkeypatch.setattr(supervisor, "StageHost", _SharedHost)


def _environment(*folders: Path) -> dict[str, str]:
    """Return the environment of a host. It finds modules in these folders and in that of the tests."""
    paths = (*map(str, folders), str(TESTS), os.environ.get("PYTHONPATH"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="skewless-hosts-")


def _log(name: str) -> Path:
    return Path(_folder().name) / f"{name}.log"
