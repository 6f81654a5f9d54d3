"""Starts stages as forks of one process that has imported their code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from skewless import topology
from skewless.errors import CrashedError
from skewless.lab.local import child_process

START_S = 300.0
"""Deadline for the start of a process. The first one waits until the host has imported the modules."""


def modules_of(stages: Iterable[topology.Stage]) -> list[str]:
    """Return the modules that processes of these stages import."""
    builders = (stage.builder.partition(":")[0] for stage in stages)
    # pyarrow imports pandas, where it is installed, at its first conversion of a NumPy array.
    pandas = ["pandas"] if find_spec("pandas") else []
    return ["skewless.cli.commands.run", "skewless.service", "skewless.monitoring.logs", *builders, *pandas]


class HostedProcess:
    """A process that a host has forked. Has the methods of `subprocess.Popen` that its supervision needs."""

    def __init__(self, host: StageHost, name: str, pid: int) -> None:
        self._host = host
        self._name = name
        self.pid = pid
        self.returncode: int | None = None
        """Exit code, negative after a signal; None while the process runs."""

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        while self.returncode is None and self._host.receive(0):
            pass
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._host.receive(remaining) and timeout is not None:
                raise subprocess.TimeoutExpired(self._name, timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class StageHost:
    """Starts processes of stages. Use it from one thread: as with `child_process`, they do not outlive it.

    The host is a process that imports `modules`, at the first start. `environment` and `log` are its own.
    """

    def __init__(self, modules: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._modules = modules
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._starting = ""
        """Name of the process that has been requested last."""
        self._started: list[HostedProcess] = []
        """The process that has been started last, until `start` returns it."""
        self._running: dict[int, HostedProcess] = {}

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str], *, log: Path) -> HostedProcess:
        """Start `skewless ARGUMENTS` in a process group of its own. Appends its output to `log`.

        `ps -e` and `top` show the first 15 characters of the name. Raises CrashedError if the host does not answer, and
        OSError if the machine has no memory or no process id for a process.
        """
        connection = self.connect()
        log.touch()  # so that it exists when this method returns
        request = {
            "name": name,
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "log": str(log.absolute()),
        }
        self._starting = name
        with contextlib.suppress(BrokenPipeError):  # the host has ended, which `receive` finds
            connection.send(request)
        deadline = time.monotonic() + START_S
        while not self._started:
            if not self.receive(max(0.0, deadline - time.monotonic())) or self._connection is None:
                self.close()  # a late answer would be taken for that to the next request
                raise CrashedError(f"the process that starts the stages did not start {name}; its log is {self._log}")
        return self._started.pop()

    def receive(self, timeout_s: float | None) -> bool:
        """Wait for a message of the host and store it. Returns False at the timeout."""
        if self._connection is None or not self._connection.poll(timeout_s):
            return False
        try:
            pid, code = self._connection.recv()
        except (EOFError, OSError):
            self.close()
            return True
        if not pid:
            raise OSError(code, os.strerror(code))
        if code is None:
            self._running[pid] = HostedProcess(self, self._starting, pid)
            self._started.append(self._running[pid])
        else:
            self._running.pop(pid).returncode = code
        return True

    def close(self) -> None:
        """End the host. The processes that still run are killed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            child_process.stop(self._process)
            self._process = None
        for child in self._running.values():
            child.returncode = -signal.SIGKILL
        self._running.clear()

    def connect(self) -> Connection:
        """Return the connection to the host, which is started if it does not run. It ends with the calling thread."""
        if self._connection is None:
            self._connection, theirs = Pipe()
            with theirs:
                program = [sys.executable, "-m", "skewless.lab.local.stage_host_process", str(theirs.fileno())]
                self._process = child_process.start(
                    [*program, *self._modules], self._environment, log=self._log, inherited=[theirs.fileno()]
                )
        return self._connection
