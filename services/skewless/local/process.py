"""Child processes that never outlive us, however we end.

On Linux the kernel kills a child when the thread that started it ends: start children from the main thread, or from one
that lives as long as they should. Elsewhere only a parent that ends in good order takes its children along.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_HERE = Path(__file__).parent
_PYTHON = (sys.executable, "-I", "-S")


def start(args: Sequence[str], env: Mapping[str, str] | None = None, *, log: Path) -> subprocess.Popen[bytes]:
    """Start `args` in a process group of its own, so that Ctrl-C reaches only us; its output is appended to `log`."""
    launch = (*_PYTHON, str(_HERE / "launch.py"), str(os.getpid()))
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - no shell
            [*launch, *args],
            env=dict(env) if env is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )


def stop(child: subprocess.Popen[bytes], grace_s: float = 10.0) -> int:
    """Ask the child's group to end, kill it after `grace_s` seconds, and return the exit code."""
    try:
        if child.poll() is None:
            _signal(child, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace_s)
    finally:
        kill(child)
    return child.returncode


def kill(child: subprocess.Popen[bytes]) -> None:
    """End the child's group at once, as a crash would."""
    if child.poll() is None:
        _signal(child, signal.SIGKILL)
        child.wait()


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


@contextlib.contextmanager
def ended_afterwards(grace_s: float = 10.0) -> Iterator[None]:
    """End the processes that a library starts in the block and leaves running, as PySpark does with its Java."""
    before = _children()
    try:
        yield
    finally:
        _end(_children() - before, grace_s)


@contextlib.contextmanager
def ended_on_failure(grace_s: float = 10.0) -> Iterator[None]:
    """End the processes that a library starts in the block, if the block fails or is interrupted."""
    before = _children()
    try:
        yield
    except BaseException:
        _end(_children() - before, grace_s)
        raise


def _children() -> set[psutil.Process]:
    import psutil

    return set(psutil.Process().children(recursive=True))


def _end(left: set[psutil.Process], grace_s: float) -> None:
    import psutil

    for child in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    _, alive = psutil.wait_procs(left, grace_s)
    for child in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


@contextlib.contextmanager
def removed_afterwards(folder: Path) -> Iterator[None]:
    """Remove `folder` at the end of the block; a janitor process does so when we are killed before it."""
    janitor = subprocess.Popen(  # noqa: S603 - no shell
        [*_PYTHON, str(_HERE / "janitor.py"), str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        janitor.communicate()
