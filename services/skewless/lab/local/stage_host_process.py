"""Forks a process for each stage it is asked for: `stage_host_process.py CONNECTION MODULE...`.

It imports the modules once. So a stage starts in a fraction of the CPU time, and all stages share the memory of the
imported code. No thread may exist before a fork, so nothing but imports runs in this process. The connection is one of
`multiprocessing`:

    {"name": ..., "arguments": [...], "environment": {...}, "folder": ..., "log": ...}  -> (pid, None)
                                                        when a process has ended:  -> (pid, exit code)
                                            if the machine cannot start a process:  -> (0, errno)

The process ends when the connection is closed, and its children end with it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import inspect
import os
import runpy
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from skewless.lab.local.die_with_parent import PR_SET_PDEATHSIG


def main() -> None:
    """Serve requests until the connection is closed. In a forked process, run the command line of the request."""
    connection = Connection(int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    # Faust looks for the module of each agent. The first search resolves the paths of all modules and stores them.
    inspect.getmodule(inspect.currentframe())
    # The collector would write to the pages that the processes share.
    gc.collect()
    gc.freeze()
    parent = os.getpid()
    request = _serve(connection)
    if request is not None:
        _become(request, parent)


def _serve(connection: Connection) -> dict[str, Any] | None:
    """Answer requests. Returns the request in a forked process, and None when the connection has been closed.

    The write end of a pipe exists in one forked process only. So the pipe is closed when this process has ended.
    """
    pipes: dict[int, int] = {}
    """Process id by the read end of its pipe."""
    while True:
        for ready in wait([connection, *pipes]):
            if isinstance(ready, int):
                os.close(ready)
                pid, status = os.waitpid(pipes.pop(ready), 0)
                _send(connection, pid, os.waitstatus_to_exitcode(status))
                continue
            try:
                request: dict[str, Any] = connection.recv()
            except (EOFError, OSError):
                for pid in pipes.values():
                    os.kill(pid, signal.SIGKILL)
                return None
            ours, theirs = os.pipe()
            try:
                pid = os.fork()
            except OSError as error:
                os.close(ours)
                os.close(theirs)
                _send(connection, 0, error.errno)
                continue
            if pid == 0:
                connection.close()
                for inherited in (ours, *pipes):
                    os.close(inherited)
                return request
            os.close(theirs)
            with suppress(OSError):  # it has already done so, or ended
                os.setpgid(pid, pid)
            pipes[ours] = pid
            _send(connection, pid, None)


def _send(connection: Connection, pid: int, code: int | None) -> None:
    with suppress(BrokenPipeError):
        connection.send((pid, code))


def _become(request: dict[str, Any], parent: int) -> None:
    """Run the command line of a request as a process of its own, as `python -m skewless` does."""
    with suppress(OSError):
        os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        Path("/proc/self/comm").write_text(request["name"][:15])  # the name that `ps -e`, `top` and `pgrep` show
    if os.getppid() != parent:  # the parent died before the request
        sys.exit(1)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    runpy.run_module("skewless", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
