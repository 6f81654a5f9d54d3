"""Child processes that do not outlive this process.

On Linux, the kernel kills a child when the thread that started it ends. Start children from the main thread, or from a
thread that lives as long as they should. On other systems, children end only if their parent exits normally.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import psutil

_HERE = Path(__file__).parent
GRACE_S = 10.0
"""Time between SIGTERM and SIGKILL, in seconds."""
_PYTHON = (sys.executable, "-I", "-S")


class ChildProcess(Protocol):
    """A child process. `subprocess.Popen` is one."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """Exit code, negative after a signal; None if the process ran at the last call of `poll` or `wait`."""

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raises subprocess.TimeoutExpired."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal to the process, if it runs."""


def start(
    args: Sequence[str], env: Mapping[str, str] | None = None, *, log: Path, inherited: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start `args` in a new process group, so that Ctrl-C reaches only this process. Appends its output to `log`.

    The process inherits the file descriptors `inherited`.
    """
    launcher = (*_PYTHON, str(_HERE / "die_with_parent.py"), str(os.getpid()))
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - no shell
            [*launcher, *args],
            env=dict(env) if env is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
            pass_fds=inherited,
        )


def stop(*children: ChildProcess, grace_s: float = GRACE_S) -> None:
    """Send SIGTERM to the children's groups, and kill those that still run after `grace_s` seconds."""
    try:
        for child in children:
            if child.poll() is None:
                _signal(child, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for child in children:
            kill(child)


def kill(child: ChildProcess) -> None:
    """Kill the child's group with SIGKILL, like a crash."""
    if child.poll() is None:
        _signal(child, signal.SIGKILL)
        child.wait()


def _signal(child: ChildProcess, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


@contextlib.contextmanager
def terminate_children_on_exit() -> Iterator[None]:
    """Terminate the processes that a library starts in the block and leaves running, such as PySpark's JVM."""
    previous = _children()
    try:
        yield
    finally:
        _terminate(_children() - previous)


@contextlib.contextmanager
def ended_on_failure() -> Iterator[None]:
    """Terminate the processes that a library starts in the block, if the block fails or is interrupted."""
    previous = _children()
    try:
        yield
    except BaseException:
        try:
            _terminate(_children() - previous)
        except KeyboardInterrupt:  # the second one: do not wait
            _kill(_children() - previous)
        raise


def _children() -> set[psutil.Process]:
    import psutil

    return set(psutil.Process().children(recursive=True))


def _terminate(children: set[psutil.Process]) -> None:
    import psutil

    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    _, alive = psutil.wait_procs(children, GRACE_S)
    _kill(alive)


def _kill(children: Iterable[psutil.Process]) -> None:
    import psutil

    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


@contextlib.contextmanager
def temporary_folder(folder: Path) -> Iterator[None]:
    """Remove `folder` at the end of the block, also if this process is killed: a cleanup process removes it."""
    cleanup = subprocess.Popen(  # noqa: S603 - no shell
        [*_PYTHON, str(_HERE / "cleanup_process.py"), str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        # Closes its standard input, which triggers the removal, and waits for its end.
        cleanup.communicate()
