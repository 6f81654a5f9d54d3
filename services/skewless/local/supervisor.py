"""All stages of a pipeline on this machine, one process per replica, restarted when they die."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from skewless import topology
from skewless.errors import ConfigurationError, CrashedError, SkewlessError, UnreachableError
from skewless.local import process
from skewless.local.restarts import CONFIGURATION, UNREACHABLE, Restarts
from skewless.settings import PipelineSettings

GIVEN_UP: Mapping[int, type[SkewlessError]] = {CONFIGURATION: ConfigurationError, UNREACHABLE: UnreachableError}
"""By exit code of a process that is not started again."""
GRACE_S = 15.0
AGAIN_S = 5.0
"""Longest time until a stage looks again whose input has not ended."""
TAIL_BYTES = 2000
TAIL_LINES = 10

Command = Callable[[str, int], Sequence[str]]
"""(stage, instance) -> command line."""


@dataclass(frozen=True)
class Event:
    """Something happened to a process."""

    name: str
    """Stage and instance, as in `router-0`."""
    kind: Literal["started", "ended", "again", "finished"]
    detail: str


@dataclass
class Replica:
    """One process of a stage: what it is, and how it goes."""

    name: str
    stage: str
    command: Sequence[str]
    log: Path
    metrics_port: int
    restarts: Restarts
    child: subprocess.Popen[bytes] | None = None
    start_at: float | None = field(default=0.0)
    """Time of the next start; None while it runs, and once it has finished."""
    waits_for_input: bool = False
    """Whether it starts before that time when its input has ended."""
    started_at: float = 0.0
    finished_at: float = 0.0

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self.child.pid if self.child and self.child.poll() is None else None


class Supervisor:
    """Starts the stages of a pipeline, and starts again what dies. The topics must exist.

    Use it from one thread that lives as long as it: the kernel kills the processes when that thread ends. Each
    writes its log to `<logs>/<stage>-<instance>.log`. `command` replaces `skewless run`. `rerun` says that the pipeline
    has run before: with `drain` its stages may take the end of that run for the end of this one.
    """

    def __init__(  # noqa: PLR0913 - by name
        self,
        settings_file: Path | None,
        settings: PipelineSettings,
        *,
        drain: bool,
        logs: Path,
        command: Command | None = None,
        rerun: bool = False,
    ) -> None:
        self.logs = logs
        self._rerun = rerun
        # People read these logs, and they are no terminals: lines of text, unless the settings say otherwise.
        self._env = {"SKEWLESS__LOG__FORMAT": "text"} if settings.log.format == "auto" else {}
        command = command or (lambda stage, instance: _run_stage(stage, instance, settings_file, drain=drain))
        replicas = settings.replicas.model_dump()
        wanted = [(row.name, instance) for row in topology.STAGES for instance in range(replicas[row.name])]
        self.processes = {
            f"{stage}-{instance}": Replica(
                name=f"{stage}-{instance}",
                stage=stage,
                command=command(stage, instance),
                log=logs / f"{stage}-{instance}.log",
                metrics_port=port,
                restarts=Restarts(drain=drain),
            )
            for (stage, instance), port in zip(wanted, _free_ports(len(wanted)), strict=True)
        }

    @property
    def done(self) -> bool:
        """Whether all processes have finished; only with `drain`."""
        return all(replica.child is None and replica.start_at is None for replica in self.processes.values())

    def start(self) -> list[Event]:
        """Start all processes."""
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.poll(time.monotonic())

    def poll(self, now: float) -> list[Event]:
        """See who has ended and start who is due; `now` is `time.monotonic()`. Call it a few times a second.

        Raises the error of a process that must not be restarted, after stopping all others.
        """
        try:
            return [event for replica in self.processes.values() for event in self._look_after(replica, now)]
        except SkewlessError:
            self.stop()
            raise

    def kill(self, name: str) -> None:
        """End a process as a crash would; `poll` brings it back."""
        if child := self.processes[name].child:
            process.kill(child)

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Ask all processes to end, kill what still runs after `grace_s` seconds; nothing is restarted."""
        running = [replica.child for replica in self.processes.values() if replica.child]
        for replica in self.processes.values():
            replica.start_at = replica.child = None
        try:
            for child in running:
                if child.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            for child in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for child in running:
                process.kill(child)

    def _look_after(self, replica: Replica, now: float) -> list[Event]:
        events = []
        if replica.child and (code := replica.child.poll()) is not None:
            replica.child = None
            events.append(self._ended(replica, code, now))
        if replica.start_at is not None and (
            replica.start_at <= now or (replica.waits_for_input and not self._input_at_work(replica))
        ):
            self._start(replica, now)
            events.append(Event(replica.name, "started", f"metrics on port {replica.metrics_port}"))
        return events

    def _start(self, replica: Replica, now: float) -> None:
        env = os.environ | self._env | {"SKEWLESS__METRICS__PORT": str(replica.metrics_port)}
        replica.child = process.start(replica.command, env, log=replica.log)
        replica.start_at, replica.waits_for_input = None, False
        replica.started_at = now
        replica.restarts.started(now)

    def _ended(self, replica: Replica, code: int, now: float) -> Event:
        verdict = replica.restarts.ended(code, now)
        if verdict.action == "finished":
            if self._may_have_missed(replica):
                replica.start_at, replica.waits_for_input = now + AGAIN_S, True
                return Event(replica.name, "again", "may have ended before its input did, looks again")
            replica.finished_at = now
            return Event(replica.name, "finished", "exit code 0")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        last = f"; its log {replica.log} ends with\n{_tail(replica.log)}"
        if code == CONFIGURATION and not _is_free(replica.metrics_port):
            # Somebody was quicker to take it, between our look for a free one and the start of the process.
            lost, (replica.metrics_port,) = replica.metrics_port, _free_ports(1)
            replica.start_at = now
            return Event(replica.name, "ended", f"found its metrics port {lost} taken, starts again with another")
        if verdict.action == "give_up":
            raise GIVEN_UP.get(code, CrashedError)(f"{replica.name} {how}{last}")
        replica.start_at = verdict.at
        wait = f"{how}, starts again in {verdict.at - now:.1f} s"
        return Event(replica.name, "ended", wait + (last if code > 0 else ""))

    def _may_have_missed(self, replica: Replica) -> bool:
        """Whether a process upstream may have written after this one had found the end of an earlier run.

        When both have ended nobody knows which came first. But who began after its input had ended has seen all of it.
        """
        return self._input_at_work(replica) or (
            self._rerun and any(other.finished_at > replica.started_at for other in self._inputs(replica))
        )

    def _input_at_work(self, replica: Replica) -> bool:
        """Whether a process upstream is still at work."""
        return any(other.child is not None or other.start_at is not None for other in self._inputs(replica))

    def _inputs(self, replica: Replica) -> list[Replica]:
        above = topology.upstream(replica.stage)
        return [other for other in self.processes.values() if other.stage in above]


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])


def _run_stage(stage: str, instance: int, file: Path | None, *, drain: bool) -> list[str]:
    command = [sys.executable, "-m", "skewless", "run", stage, "--instance", str(instance)]
    return command + (["--file", str(file)] if file else []) + (["--drain"] if drain else [])


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def _free_ports(count: int) -> list[int]:
    """Choose ports that are free now, all at once so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]
