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
from skewless.kafka.admin.client import Admin
from skewless.lab.local.folders import file_lock, open_writable, state_folder

KEPT_S = 300.0
"""Time for which the file of an ended command is kept: the maximum of `transport.session_timeout_s`."""


class Published(NamedTuple):
    """A process that runs on this machine."""

    pid: int
    """Process id of the command that runs it."""
    metrics_port: int
    """0 if it has none."""


class _Command(NamedTuple):
    """A command that runs or ran processes of a pipeline."""

    cluster: str
    """Id of its Kafka cluster."""
    pid: int
    ports: Mapping[str, int]
    """Metrics ports of its processes."""
    ended_at: float | None
    """Time at which it ended, in seconds since the epoch; None if it runs."""


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

    Raises FencedError if this process runs the pipeline already, and UnreachableError if no broker answers.
    """
    pid, cluster = os.getpid(), Admin(settings.kafka).cluster_id()
    path = _folder() / f"{settings.full_name}.{pid}.json"
    with open_writable(path, "a") as file:
        if _is_locked(file.fileno()):
            raise FencedError(
                f"this process runs pipeline {settings.full_name} already: end that run before the next one"
            )
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        json.dump({"pipeline": settings.full_name, "cluster": cluster, "pid": pid, "ports": dict(ports)}, file)
        file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)


def read(settings: PipelineSettings) -> Mapping[str, Published]:
    """Return the published processes of a pipeline whose command runs."""
    return {
        name: Published(command.pid, port)
        for command in _commands_of(settings)
        if command.ended_at is None
        for name, port in command.ports.items()
    }


def recently_ended(settings: PipelineSettings) -> frozenset[str]:
    """Return the processes of a pipeline whose command has ended, and whose sessions may not have expired yet.

    For a command that was killed, they are known only if it was started recently.
    """
    start = time.time() - settings.transport.session_timeout_s
    commands = _commands_of(settings)
    running = {name for command in commands if command.ended_at is None for name in command.ports}
    ended = {name for command in commands if command.ended_at and command.ended_at > start for name in command.ports}
    return frozenset(ended - running)


def run_by_others(settings: PipelineSettings) -> frozenset[str]:
    """Return the processes that other commands run of a pipeline that this process has published. Asks no broker."""
    running = [command for command in _commands(settings.full_name) if command.ended_at is None]
    own = {command.cluster for command in running if command.pid == os.getpid()}
    others = [command for command in running if command.pid != os.getpid() and command.cluster in own]
    return frozenset(name for command in others for name in command.ports)


def _commands_of(settings: PipelineSettings) -> list[_Command]:
    """Return the commands that run or ran a pipeline on its cluster, whose addresses may differ.

    Raises UnreachableError if there may be one and no broker answers.
    """
    commands = list(_commands(settings.full_name))
    cluster = Admin(settings.kafka).cluster_id() if commands else ""
    return [command for command in commands if command.cluster == cluster]


def _commands(pipeline: str) -> Iterator[_Command]:
    """Yield the commands that run or ran a pipeline of this full name, on any cluster.

    Removes the files of commands that ended long ago.
    """
    for path in sorted(_folder().glob(f"{pipeline}.*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError), path.open() as file:
            document = json.load(file)
            ports = {str(name): int(port) for name, port in document["ports"].items()}
            ended_at = None if _is_locked(file.fileno()) else path.stat().st_mtime
            if document["pipeline"] != pipeline:
                continue
            if ended_at is not None and ended_at < time.time() - KEPT_S:
                path.unlink()
                continue
            yield _Command(str(document["cluster"]), int(document["pid"]), ports, ended_at)


def _folder() -> Path:
    return state_folder() / "up"


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
