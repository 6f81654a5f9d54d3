"""Runs all stages of a pipeline on this machine, one process per replica, and restarts processes that end."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, CrashedError, SkewlessError, UnreachableError
from skewless.lab.local import child_process, published_processes
from skewless.lab.local.ports import find_free_ports
from skewless.lab.local.restarts import CONFIGURATION, UNREACHABLE, RestartPolicy
from skewless.lab.local.stage_host import StageHost, modules_of

NO_PROCESS_ERRORS = {errno.EAGAIN, errno.ENOMEM}
"""Errors of a start that can succeed later."""
NOT_STARTED = os.EX_OSERR
"""Exit code in place of that of a process that was not started."""
ERRORS_BY_EXIT_CODE: Mapping[int, type[SkewlessError]] = {
    CONFIGURATION: ConfigurationError,
    UNREACHABLE: UnreachableError,
    NOT_STARTED: UnreachableError,
}
"""Error to raise by exit code of a process that is not restarted; CrashedError for other exit codes."""
GRACE_S = 26.0
"""Time for a clean stop of all processes, longer than `service.STOP_S`. Work that is not committed then is repeated."""
RECHECK_S = 5.0
"""Maximum delay before a drained stage checks its input again, because the input had not ended."""
TAIL_BYTES = 2000
TAIL_LINES = 10

Command = Callable[[str, int], Sequence[str]]
"""(stage, instance) -> command line"""


@dataclass(frozen=True)
class Event:
    """A change in the state of a process."""

    name: str
    """Stage and instance, such as `router-0`."""
    kind: Literal["started", "ended", "finished"]
    detail: str


@dataclass
class Replica:
    """One process of a stage: its configuration and its state."""

    name: str
    stage: str
    command: Sequence[str]
    """Arguments of `skewless`, or a command line if the supervisor runs commands of its caller."""
    log: Path
    metrics_port: int
    restarts: RestartPolicy
    child: child_process.ChildProcess | None = None
    start_at: float | None = field(default=0.0)
    """Time of the next start; None while it runs and after it has finished."""
    waits_for_input: bool = False
    """True if it starts earlier when its input ends."""
    started_at: float = 0.0
    finished_at: float = 0.0

    @property
    def pid(self) -> int | None:
        """Process id, or None while it does not run."""
        return self.child.pid if self.child and self.child.poll() is None else None


class Supervisor:
    """Starts the stages of a pipeline and restarts processes that end. The topics must exist.

    Use it from one thread that lives as long as the supervisor, because the kernel kills the processes when that thread
    ends. Each process writes its log to `<logs>/<stage>-<instance>.log`. Set `rerun` if the pipeline has run before:
    with `drain`, its stages may mistake the end of that run for the end of this one.

    A host starts the processes. It imports the code of the stages once, so that a stage starts in a fraction of the CPU
    time. Without `host`, the supervisor has one of its own. `command` replaces `skewless run` by a command line, which
    needs no host. The processes have the environment of this process and `environ`.
    """

    def __init__(  # noqa: PLR0913 - the optional arguments are passed by name
        self,
        settings_file: Path | None,
        settings: PipelineSettings,
        *,
        drain: bool,
        logs: Path,
        command: Command | None = None,
        host: StageHost | None = None,
        rerun: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.logs = logs
        self._settings = settings
        # Users read these log files. The format `auto` would write JSON to a file.
        self._env = dict(environ or {}) | ({"SKEWLESS__LOG__FORMAT": "text"} if settings.log.format == "auto" else {})
        needed = topology.needed_stages(settings)
        own = settings.own_source
        self._before_source = {topology.writer(own).name} if own else set[str]()
        """Stages that write the source topic, if it is a topic of the pipeline."""
        # Its splitter may end before they have written, so the stages after it run again, as in a second run.
        self._rerun = rerun or bool(self._before_source)
        internal = {topic.name for topic in topology.TOPICS if not topic.public}
        # A partition that has ended may have more records in a second run, and from a source topic that starts later.
        may_continue = self._rerun or settings.has_several_sources
        self._end_after_input = {
            stage.name
            for stage in needed
            if not may_continue and stage.reads_end and internal.issuperset(stage.inputs_of(settings))
        }
        """Stages that do not end before their input: the records of internal topics report its end."""
        self._own_host = StageHost(modules_of(needed), log=logs / "host.log")
        self._host = None if command else host or self._own_host
        command = command or (lambda stage, instance: _run_stage(stage, instance, settings_file, drain=drain))
        instances = _instances(settings)
        connect_timeout_s = min(
            server.connect_timeout_s for server in (settings.kafka, settings.registry) if server is not None
        )
        self.processes = {
            f"{stage}-{instance}": Replica(
                name=f"{stage}-{instance}",
                stage=stage,
                command=command(stage, instance),
                log=logs / f"{stage}-{instance}.log",
                metrics_port=port,
                restarts=RestartPolicy(drain=drain, connect_timeout_s=connect_timeout_s),
            )
            for (stage, instance), port in zip(instances, find_free_ports(len(instances), ""), strict=True)
        }

    @property
    def done(self) -> bool:
        """True if all processes have finished, which happens only with `drain`."""
        return all(replica.child is None and replica.start_at is None for replica in self.processes.values())

    def start(self) -> list[Event]:
        """Start all processes."""
        return self.poll(time.monotonic())

    def poll(self, now: float) -> list[Event]:
        """Check all processes and start those that are due. Call it several times a second with `time.monotonic()`.

        If a process must not be restarted, stops all others and raises the error of its exit code.
        """
        try:
            return [event for replica in self.processes.values() for event in self._poll_replica(replica, now)]
        except SkewlessError:
            self.stop()
            raise

    def kill(self, name: str) -> None:
        """Kill a process like a crash. `poll` restarts it."""
        if child := self.processes[name].child:
            child_process.kill(child)

    def stop(self, grace_s: float = GRACE_S) -> None:
        """Send SIGTERM to all processes and kill those that still run after `grace_s` seconds. Restarts nothing."""
        running = [replica.child for replica in self.processes.values() if replica.child]
        for replica in self.processes.values():
            replica.start_at = replica.child = None
        try:
            child_process.stop(*running, grace_s=grace_s)
        finally:
            self._own_host.close()

    def _poll_replica(self, replica: Replica, now: float) -> list[Event]:
        events: list[Event] = []
        if replica.child and (code := replica.child.poll()) is not None:
            replica.child = None
            events += self._handle_exit(replica, code, now)
        if replica.start_at is not None and (
            replica.start_at <= now or (replica.waits_for_input and not self._input_is_running(replica))
        ):
            is_recheck = replica.waits_for_input
            try:
                self._start(replica, now)
            except OSError as error:
                if error.errno not in NO_PROCESS_ERRORS:
                    raise
                events += self._handle_exit(replica, NOT_STARTED, now)
            else:
                if not is_recheck:
                    events.append(Event(replica.name, "started", f"metrics on port {replica.metrics_port}"))
        return events

    def _start(self, replica: Replica, now: float) -> None:
        env = os.environ | self._env | {"SKEWLESS__METRICS__PORT": str(replica.metrics_port)}
        replica.log.parent.mkdir(parents=True, exist_ok=True)
        replica.restarts.started(now)
        if self._host is not None:
            replica.child = self._host.start(replica.name, replica.command, env, log=replica.log)
        else:
            replica.child = child_process.start(replica.command, env, log=replica.log)
        replica.start_at, replica.waits_for_input = None, False
        replica.started_at = now

    def _handle_exit(self, replica: Replica, code: int, now: float) -> Iterator[Event]:
        decision = replica.restarts.ended(code, now)
        if decision.action == "finished":
            if self._may_have_missed_input(replica):
                replica.start_at, replica.waits_for_input = now + RECHECK_S, True
                return
            replica.finished_at = now
            yield Event(replica.name, "finished", "exit code 0")
            return
        reason = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == NOT_STARTED:
            reason = "could not be started, because this machine has no memory or no process id left"
        log_tail = f"; its log {replica.log} ends with\n{_tail(replica.log)}"
        if code == CONFIGURATION and not _is_free(replica.metrics_port):
            # Another process bound the port between the search for a free port and the start of this process.
            port_in_use, (replica.metrics_port,) = replica.metrics_port, find_free_ports(1, "")
            replica.start_at = now
            yield Event(
                replica.name, "ended", f"found its metrics port {port_in_use} in use, restarts with another port"
            )
            return
        if decision.action == "give_up" or (code == UNREACHABLE and self._is_replaced(replica)):
            raise ERRORS_BY_EXIT_CODE.get(code, CrashedError)(f"{replica.name} {reason}{log_tail}")
        replica.start_at = decision.restart_at
        delay_s = decision.restart_at - now
        detail = f"{reason}, restarts {f'in {delay_s:.1f} s' if delay_s else 'at once'}"
        yield Event(replica.name, "ended", detail + (log_tail if code > 0 and code != NOT_STARTED else ""))

    def _is_replaced(self, replica: Replica) -> bool:
        """Return whether another `skewless up` runs this process too. Both would fence each other repeatedly."""
        return replica.name in published_processes.run_by_others(self._settings)

    def _may_have_missed_input(self, replica: Replica) -> bool:
        """Return whether an upstream process may have written after this process reached the end of an earlier run.

        If both have ended, the order of their ends is unknown. But a process that started after its input had ended has
        read all of it.
        """
        if replica.stage in self._end_after_input:
            return False
        return self._input_is_running(replica) or any(
            other.finished_at > replica.started_at for other in self._inputs(replica)
        )

    def _input_is_running(self, replica: Replica) -> bool:
        """Return whether an upstream process runs or will be started."""
        return any(other.child is not None or other.start_at is not None for other in self._inputs(replica))

    def _inputs(self, replica: Replica) -> list[Replica]:
        """Return all processes of the upstream stages."""
        upstream = topology.upstream(replica.stage)
        if replica.stage not in self._before_source:
            upstream = upstream | self._before_source
        return [other for other in self.processes.values() if other.stage in upstream]


def process_names(settings: PipelineSettings) -> list[str]:
    """Return the names of all processes of a pipeline, such as `router-0`."""
    return [f"{stage}-{instance}" for stage, instance in _instances(settings)]


def _instances(settings: PipelineSettings) -> list[tuple[str, int]]:
    stages = [stage.name for stage in topology.needed_stages(settings)]
    return [(stage, instance) for stage in stages for instance in range(settings.replicas.of(stage))]


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:  # another program may remove old files of /tmp
        lines = [f"(it cannot be read: {error.strerror})"]
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])


def _run_stage(stage: str, instance: int, file: Path | None, *, drain: bool) -> list[str]:
    command = ["run", stage, "--instance", str(instance)]
    return command + (["--file", str(file)] if file else []) + (["--drain"] if drain else [])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
