"""Publishes the processes of `skewless up` and of `skewless run`, for commands of the same user on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import FencedError
from skewless.lab.local.folders import create_writable, file_lock, state_folder

KEPT_S = 300.0
"""Time for which the file of an ended command is kept: the maximum of `transport.session_timeout_s`."""


class Published(NamedTuple):
    """A process that runs on this machine."""

    pid: int
    """Process id of the command that runs it."""
    metrics_port: int
    """0 if it has none."""


@contextlib.contextmanager
def registering(settings: PipelineSettings) -> Iterator[None]:
    """Let no other command check and publish processes of the pipeline until the end of the block."""
    with file_lock(_folder() / f"{settings.full_name}.lock"):
        yield


@contextlib.contextmanager
def published(settings: PipelineSettings, ports: Mapping[str, int]) -> Iterator[None]:
    """Publish the metrics ports of a pipeline's processes, such as `router-0`, until the end of the block.

    The file is locked as long as this process lives. The kernel releases the lock also if the process is killed. The
    file remains for a while, because it says which processes have ended.

    Raises FencedError if this process runs the pipeline already.
    """
    pid = os.getpid()
    path = _folder() / f"{settings.full_name}.{pid}.json"
    create_writable(path.parent)
    with path.open("a") as file:
        if _is_locked(file.fileno()):
            raise FencedError(
                f"this process runs pipeline {settings.full_name} already: end that run before the next one"
            )
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        json.dump({**_identity(settings), "pid": pid, "ports": dict(ports)}, file)
        file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)


def read(settings: PipelineSettings, *, except_pid: int | None = None) -> Mapping[str, Published]:
    """Return the published processes of a pipeline whose command runs, without those of the command `except_pid`."""
    return {
        name: process
        for name, process, ended_at in _published(settings)
        if ended_at is None and process.pid != except_pid
    }


def recently_ended(settings: PipelineSettings) -> frozenset[str]:
    """Return the processes of a pipeline whose command has ended, and whose sessions may not have expired yet.

    For a command that was killed, they are known only if it was started recently.
    """
    start = time.time() - settings.transport.session_timeout_s
    ended = {name for name, _, ended_at in _published(settings) if ended_at is not None and ended_at > start}
    return frozenset(ended - read(settings).keys())


def _published(settings: PipelineSettings) -> Iterator[tuple[str, Published, float | None]]:
    """Yield each process with the time at which its command ended, in seconds since the epoch; None if it runs.

    Removes the files of commands that ended long ago.
    """
    for path in sorted(_folder().glob(f"{settings.full_name}.*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError), path.open() as file:
            document = json.load(file)
            if not _identity(settings).items() <= document.items():
                continue
            ended_at = None if _is_locked(file.fileno()) else path.stat().st_mtime
            if ended_at is not None and ended_at < time.time() - KEPT_S:
                path.unlink()
                continue
            processes = document["ports"].items()
            yield from ((str(name), Published(int(document["pid"]), int(port)), ended_at) for name, port in processes)


def _folder() -> Path:
    return state_folder() / "up"


def _identity(settings: PipelineSettings) -> dict[str, str]:
    return {"pipeline": settings.full_name, "bootstrap_servers": settings.kafka.bootstrap_servers}


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
