"""The processes of a pipeline under fire: whoever dies is started again, as an orchestrator would, without back-off."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from chaos.ends import FENCED, NO_BROKER_AT_START
from chaos.journal import Journal
from helpers.kafka import Pipeline
from skewless.lab.local import child_process

AGAIN_S = 0.2
LEAVE_S = 10.0
"""A process that is asked to end has to end within this time while the broker is reachable."""
MEGABYTE = 2**20
NO_BROKER = ("no Kafka broker answers", "no answer from Kafka")
"""What a process says that finds no broker at its start."""
TOLERATED = (1, FENCED)
"""Exit codes of any process where ends are not `strict`."""


@dataclass
class Member:
    """One process of a stage and instance; `label` differs where several processes have one name."""

    name: str
    label: str
    again: bool = True
    """Whether it is started again when it ends. A twin and a zombie are not."""
    heir: bool = False
    """Whether it replaced a zombie, which must not end it."""
    child: subprocess.Popen[bytes] | None = None
    due: float | None = 0.0
    logged: int = 0
    """Size of its log when it was started."""
    asked_at: float | None = None
    """When it was asked to end."""
    unreachable_at: float = 0.0
    """When the broker was last unreachable since then: a clean stop waits for it, so this time does not count."""

    @property
    def stage(self) -> str:
        return self.name.partition("-")[0]


@dataclass
class Crew:
    """Keeps the processes of a pipeline running; used from one thread only."""

    pipeline: Pipeline
    journal: Journal
    members: list[Member] = field(default_factory=list)
    strict: bool = True
    """Whether a process may end by itself only where a fault justifies it."""
    wrong: list[str] = field(default_factory=list)
    """Ends as no process should have one."""
    ends: Counter[int] = field(default_factory=Counter)
    """Exit codes of processes that ended by themselves."""
    away: set[str] = field(default_factory=set)
    """Stages that are not started again now."""
    contested: set[str] = field(default_factory=set)
    """Names that more than one process has."""
    largest: dict[str, int] = field(default_factory=dict)
    """Largest resident size in MB by stage."""
    unreachable: Callable[[], bool] = lambda: False
    """Returns whether a fault keeps processes from the broker now."""

    def join(self, name: str, *, twin: bool = False) -> Member:
        """Add a process."""
        member = Member(name, f"{name}-twin" if twin else name, again=not twin)
        self.members.append(member)
        self._start(member)
        return member

    def replace(self, member: Member) -> Member:
        """Start another process of the name of one that is frozen, as an orchestrator does for a node that is lost."""
        member.again = False
        heir = Member(member.name, f"{member.label}-heir", heir=True)
        self.members.append(heir)
        self._start(heir)
        return heir

    def running(self) -> list[Member]:
        """List the processes that run and are meant to."""
        return [each for each in self.members if each.child is not None and each.asked_at is None]

    def is_up(self, member: Member) -> bool:
        """Whether a process has got so far that it reads its topic."""
        return ": started" in self._log(member)

    def kill(self, member: Member, why: str = "SIGKILL") -> None:
        """End a process as a crash would."""
        self._signal(member, signal.SIGKILL, why, "kills")

    def take_away(self, stage: str) -> None:
        """Kill all processes of a stage, and start none until the stage is removed from `away`."""
        self.away.add(stage)
        for member in self.running():
            if member.stage == stage:
                self.kill(member)

    def freeze(self, member: Member) -> subprocess.Popen[bytes] | None:
        """Hold a process still; `thaw` what is returned."""
        self._signal(member, signal.SIGSTOP, "SIGSTOP", "stops")
        return member.child

    def thaw(self, member: Member, child: subprocess.Popen[bytes] | None) -> None:
        """Let a process that was held still go on, if it is still there."""
        if child is not None and child.poll() is None:
            self.journal.say(f"SIGCONT {member.label}")
            child.send_signal(signal.SIGCONT)

    def leave(self, member: Member) -> None:
        """Ask a process to end in good order."""
        member.asked_at = now()
        self._signal(member, signal.SIGTERM, "SIGTERM", "leaves")

    def poll(self) -> None:
        """See who has ended, and start who is due."""
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
        """Note how large the processes are."""
        for member in self.members:
            if member.child is not None and member.child.poll() is None:
                size = psutil.Process(member.child.pid).memory_info().rss // MEGABYTE
                self.largest[member.stage] = max(size, self.largest.get(member.stage, 0))

    def stop(self) -> None:
        """Ask all processes to end and wait for them; whoever does not is killed, and told."""
        for member in self.running():
            self.leave(member)
        began = now()
        while self.members and now() < began + 3 * LEAVE_S:
            self.poll()
            time.sleep(0.02)
        for member in list(self.members):
            self.wrong.append(f"{member.label} still ran {now() - began:.0f} s after SIGTERM")
            self.end(member)

    def end(self, member: Member) -> None:
        """End a process for good."""
        if member.child is not None:
            child_process.kill(member.child)
        if member in self.members:
            self.members.remove(member)

    def _start(self, member: Member) -> None:
        stage, _, instance = member.name.partition("-")
        log = self._path(member)
        member.logged = log.stat().st_size if log.exists() else 0
        member.child = child_process.start(self.pipeline.armed_command(stage, int(instance)), log=log)
        member.due = None
        self.journal.say(f"start {member.label}, process {member.child.pid}", "starts")

    def _signal(self, member: Member, number: signal.Signals, what: str, counted: str) -> None:
        if member.child is not None and member.child.poll() is None:
            self.journal.say(f"{what} {member.label}", counted)
            member.child.send_signal(number)

    def _ended(self, member: Member, code: int, at: float) -> None:
        member.child = None
        took = 0.0 if member.asked_at is None else at - member.asked_at
        took_reachable = took and min(took, at - member.unreachable_at)
        how = f"{member.label} ended with {code}" + (f" {took:.1f} s after SIGTERM" if member.asked_at else "")
        self.journal.say(how)
        if code > 0:
            self.ends[code] += 1
            self.journal.say(f"    {self._last_line(member)}", "own ends")
        began = '"assigned ' in self._log(member)
        no_broker = code == FENCED and not began and any(text in self._last_line(member) for text in NO_BROKER)
        if no_broker:
            self.journal.say("    it had not started yet", NO_BROKER_AT_START)
        if (code not in self._good_ends(member) and not no_broker) or took_reachable > LEAVE_S:
            self.wrong.append(how)
        if member.asked_at is not None or not member.again:
            self.members.remove(member)
        else:
            member.due = at + AGAIN_S

    def _good_ends(self, member: Member) -> tuple[int, ...]:
        """Exit codes that are as they should be; a process that is not up yet dies of SIGTERM."""
        if member.asked_at is None:
            fenced = (FENCED,) if member.name in self.contested and not member.heir else ()
            return (-signal.SIGKILL, *(fenced if self.strict else TOLERATED))
        return (0, -signal.SIGKILL) if self.is_up(member) else (0, -signal.SIGKILL, -signal.SIGTERM)

    def _last_line(self, member: Member) -> str:
        lines = self._log(member).splitlines()
        return next((line for line in reversed(lines) if "error: " in line), lines[-1] if lines else "")

    def _log(self, member: Member) -> str:
        """Return what the process, and not one of its name before it, has logged."""
        return self._path(member).read_bytes()[member.logged :].decode(errors="replace")

    def _path(self, member: Member) -> Path:
        return self.pipeline.folder / f"{member.label}.log"


def now() -> float:
    """Seconds of the steady clock."""
    return time.monotonic()
