"""Hosts that start stages for all tests of a test process, so that the code of the stages is imported once.

A host runs the command line of `skewless run` in a process of its own for each stage, as `skewless up` does.
"""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from skewless import topology
from skewless.lab.local.stage_host import HostedProcess, StageHost, modules_of

FAULTS = Path(__file__).parents[1] / "chaos" / "faults"
"""Folder on a process's PYTHONPATH that adds fault points to it."""


class ArmedHost(StageHost):
    """Starts processes with fault points. Their tokens are files `<folder of the pipeline file>/<name>.<point>`."""

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], *, log: Path) -> HostedProcess:
        folder = Path(arguments[arguments.index("--file") + 1]).parent
        return super().start(name, arguments, {**environment, "SKEWLESS_TEST_FAULTS": str(folder / name)}, log=log)


MODULES = (*modules_of(topology.STAGES), "numba")
"""What the processes of all stages import. A router imports numba when it starts."""


@functools.cache
def stage_host() -> StageHost:
    """Return the host of this test process."""
    host = StageHost(MODULES, log=_log("host"))
    atexit.register(host.close)
    return host


@functools.cache
def armed_host() -> StageHost:
    """Return the host of this test process whose stages have fault points."""
    paths = os.pathsep.join(filter(None, (str(FAULTS), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "SKEWLESS_TEST_FAULTS": ""}
    host = ArmedHost(MODULES, log=_log("armed-host"), environment=environment)
    atexit.register(host.close)
    return host


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="skewless-hosts-")


def _log(name: str) -> Path:
    return Path(_folder().name) / f"{name}.log"
