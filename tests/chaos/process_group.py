"""The processes of a pipeline under faults. A process that ends is restarted without back-off."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from chaos.ends import FENCED, FROZEN_AT_STOP, NO_BROKER_AT_START, NO_BROKER_AT_STOP, OUTAGE_WITH_DUPLICATE
from chaos.journal import Journal
from helpers.kafka import Pipeline
from helpers.waiting import WAIT_S, until
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess

AGAIN_S = 0.2
LEAVE_S = 10.0
"""Deadline in s for the end of a process after a stop request, while the broker is reachable."""
MEGABYTE = 2**20
NO_BROKER = ("no Kafka broker answers", "no answer from Kafka")
"""Message of a process that cannot reach the broker at its start."""
LAST_COMMIT = "the last commit failed"
"""Message of a process that stops and does not know whether its last commit is done."""
DISTURBED = (
    "were lost",
    "abort and reset",
    "no broker is reachable",
    "a broker is not reachable",
    "Consumer group session timed out",
)
"""Messages of a process that joins its group again afterwards."""
TOLERATED = (1, FENCED)
"""Exit codes that any process may have if `strict` is off."""


@dataclass
class StageProcess:
    """One process of a stage and instance number. `label` is unique where several processes have the same name."""

    name: str
    label: str
    again: bool = True
    """Whether the process is restarted when it ends. Duplicate instances and zombies are not."""
    heir: bool = False
    """Whether the process replaced a zombie, which must not end it."""
    child: ChildProcess | None = None
    due: float | None = 0.0
    logged: int = 0
    """Size of its log at its start."""
    stop_requested_at: float | None = None
    """Time of the stop request."""
    stopped_frozen: bool = False
    """Whether the process was frozen at the stop request. Its group may refuse its last commit when it resumes."""
    unreachable_at: float = 0.0
    """Last time after the stop request at which the broker was unreachable. A clean stop waits for the broker."""

    @property
    def stage(self) -> str:
        return self.name.partition("-")[0]

    @property
    def is_duplicate(self) -> bool:
        """Whether the process was started while another one of its name ran."""
        return self.label == _duplicate_label(self.name)

    @property
    def was_unreachable_at_stop(self) -> bool:
        """Whether the broker was unreachable after the stop request."""
        return self.stop_requested_at is not None and self.unreachable_at >= self.stop_requested_at


def _duplicate_label(name: str) -> str:
    return f"{name}-duplicate"


@dataclass
class ProcessGroup:
    """Keeps the processes of a pipeline running. Used from one thread only."""

    pipeline: Pipeline
    journal: Journal
    members: list[StageProcess] = field(default_factory=list)
    strict: bool = True
    """Whether a process may end by itself only when a fault justifies it."""
    failures: list[str] = field(default_factory=list)
    """Unexpected ends."""
    ends: Counter[int] = field(default_factory=Counter)
    """Exit codes of processes that ended by themselves."""
    away: set[str] = field(default_factory=set)
    """Stages whose processes are not restarted now."""
    contested: set[str] = field(default_factory=set)
    """Names that more than one process has."""
    largest: dict[str, int] = field(default_factory=dict)
    """Largest resident size in MB by stage."""
    unreachable: Callable[[], bool] = lambda: False
    """Returns whether a fault makes the broker unreachable now."""

    def join(self, name: str, *, duplicate: bool = False) -> StageProcess:
        """Add a process."""
        member = StageProcess(name, _duplicate_label(name) if duplicate else name, again=not duplicate)
        self.members.append(member)
        self._start(member)
        return member

    def replace(self, member: StageProcess) -> StageProcess:
        """Start another process with the name of a frozen one, as an orchestrator does when a node is lost."""
        member.again = False
        heir = StageProcess(member.name, f"{member.label}-heir", heir=True)
        self.members.append(heir)
        self._start(heir)
        return heir

    def running(self) -> list[StageProcess]:
        """Return the processes that run and are expected to run."""
        return [each for each in self.members if each.child is not None and each.stop_requested_at is None]

    def is_up(self, member: StageProcess) -> bool:
        """Return whether a process has started to read its topic."""
        return ": started" in self._log(member)

    def is_assigned(self, member: StageProcess) -> bool:
        """Return whether nothing has happened to the membership of a process since its last assignment."""
        text = self._log(member)
        return text.rfind('"assigned ') > max(map(text.rfind, DISTURBED))

    def kill(self, member: StageProcess, why: str = "SIGKILL") -> None:
        """Kill a process."""
        self._signal(member, signal.SIGKILL, why, "kills")

    def stop_stage(self, stage: str) -> None:
        """Kill all processes of a stage. None is started until the stage is removed from `away`."""
        self.away.add(stage)
        for member in self.running():
            if member.stage == stage:
                self.kill(member)

    def freeze(self, member: StageProcess) -> ChildProcess | None:
        """Freeze a process; `thaw` resumes what this returns."""
        self._signal(member, signal.SIGSTOP, "SIGSTOP", "stops")
        return member.child

    def thaw(self, member: StageProcess, child: ChildProcess | None) -> None:
        """Resume a frozen process, if it still exists."""
        if child is not None and child.poll() is None:
            self.journal.write(f"SIGCONT {member.label}")
            child.send_signal(signal.SIGCONT)

    def leave(self, member: StageProcess) -> None:
        """Send a process a request to stop cleanly."""
        member.stop_requested_at = now()
        if member.child is not None and member.child.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):  # as in `weigh`
                member.stopped_frozen = psutil.Process(member.child.pid).status() == psutil.STATUS_STOPPED
        self.journal.counts[FROZEN_AT_STOP] += member.stopped_frozen
        self._signal(member, signal.SIGTERM, "SIGTERM", "leaves")

    def count_outage(self) -> None:
        """Record that an outage has ended during which two processes of one name run."""
        if any(member.is_duplicate for member in self.members):
            self.journal.counts[OUTAGE_WITH_DUPLICATE] += 1

    def poll(self) -> None:
        """Detect processes that have ended, and restart those that are due."""
        at = now()
        unreachable = self.unreachable()
        for member in list(self.members):
            if unreachable:
                member.unreachable_at = at
            if member.child is not None and (code := member.child.poll()) is not None:
                self._ended(member, code, at)
            if member.child is None and member.due is not None and member.due <= at and member.stage not in self.away:
                self._start(member)

    def weigh(self) -> None:
        """Record the memory of the processes."""
        for member in self.members:
            if member.child is None:
                continue
            # The process may end at any moment: its parent is another process, which takes its exit code.
            with contextlib.suppress(psutil.NoSuchProcess):
                size = psutil.Process(member.child.pid).memory_info().rss // MEGABYTE
                self.largest[member.stage] = max(size, self.largest.get(member.stage, 0))

    def stop(self) -> None:
        """Ask all processes to stop and wait for them. A process that does not stop is killed and reported."""
        for member in self.running():
            self.leave(member)
        began = now()
        with contextlib.suppress(AssertionError):
            until(lambda: not self.members, each=self.poll, limit_s=3 * LEAVE_S if self.strict else WAIT_S)
        for member in list(self.members):
            self.failures.append(f"{member.label} still ran {now() - began:.0f} s after SIGTERM")
            self.end(member)

    def end(self, member: StageProcess) -> None:
        """End a process without a restart."""
        if member.child is not None:
            child_process.kill(member.child)
        if member in self.members:
            self.members.remove(member)

    def _start(self, member: StageProcess) -> None:
        stage, _, instance = member.name.partition("-")
        log = self._path(member)
        member.logged = log.stat().st_size if log.exists() else 0
        member.child = self.pipeline.start(stage, int(instance), log=log, armed=True)
        member.due = None
        self.journal.write(f"start {member.label}, process {member.child.pid}", "starts")

    def _signal(self, member: StageProcess, number: signal.Signals, what: str, counted: str) -> None:
        if member.child is not None and member.child.poll() is None:
            self.journal.write(f"{what} {member.label}", counted)
            member.child.send_signal(number)

    def _ended(self, member: StageProcess, code: int, at: float) -> None:
        member.child = None
        took = 0.0 if member.stop_requested_at is None else at - member.stop_requested_at
        took_reachable = took and min(took, at - member.unreachable_at)
        how = f"{member.label} ended with {code}" + (f" {took:.1f} s after SIGTERM" if member.stop_requested_at else "")
        self.journal.write(how)
        if code > 0:
            self.ends[code] += 1
            self.journal.write(f"    {self._last_line(member)}", "own ends")
        began = '"assigned ' in self._log(member)
        no_broker = code == FENCED and not began and any(text in self._last_line(member) for text in NO_BROKER)
        if no_broker:
            self.journal.write("    it had not started yet", NO_BROKER_AT_START)
        in_doubt = code == FENCED and member.was_unreachable_at_stop and LAST_COMMIT in self._last_line(member)
        if in_doubt:
            self.journal.write("    the broker was unreachable while it stopped", NO_BROKER_AT_STOP)
        if (code not in self._good_ends(member) and not no_broker and not in_doubt) or (
            self.strict and took_reachable > LEAVE_S
        ):
            self.failures.append(how)
        if member.stop_requested_at is not None or not member.again:
            self.members.remove(member)
        else:
            member.due = at + AGAIN_S

    def _good_ends(self, member: StageProcess) -> tuple[int, ...]:
        """Return the expected exit codes. A process that is still starting dies of SIGTERM."""
        if member.stop_requested_at is None:
            fenced = (FENCED,) if member.name in self.contested and not member.heir else ()
            return (-signal.SIGKILL, *(fenced if self.strict else TOLERATED))
        if member.stopped_frozen:
            return (0, -signal.SIGKILL, -signal.SIGTERM, FENCED)
        return (0, -signal.SIGKILL) if self.is_up(member) else (0, -signal.SIGKILL, -signal.SIGTERM)

    def _last_line(self, member: StageProcess) -> str:
        lines = self._log(member).splitlines()
        return next((line for line in reversed(lines) if "error: " in line), lines[-1] if lines else "")

    def _log(self, member: StageProcess) -> str:
        """Return the log of the process, without the log of earlier processes with its name."""
        return self._path(member).read_bytes()[member.logged :].decode(errors="replace")

    def _path(self, member: StageProcess) -> Path:
        return self.pipeline.folder / f"{member.label}.log"


def now() -> float:
    """Return the seconds of the monotonic clock."""
    return time.monotonic()
