"""Kills processes while they have work, so that a slow machine does not only kill processes that are starting."""

from __future__ import annotations

import re
import time
from collections import Counter

from helpers.waiting import until
from skewless.lab.local.supervisor import Supervisor

ASSIGNED = re.compile(rb"assigned [1-9]")


class Killer:
    """Kills processes of a supervisor, which starts them again. Their logs must be those of this run."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._began = Counter[str]()
        """Length of the log of a process when it was last started again."""
        self.killed = Counter[str]()

    def poll(self) -> None:
        """Start again what has ended."""
        for event in self._supervisor.poll(time.monotonic()):
            if event.kind == "started":
                self._began[event.name] = self._supervisor.processes[event.name].log.stat().st_size

    def kill(self, *names: str, after_s: float) -> None:
        """Kill processes, `after_s` seconds after all of them have got partitions."""

        def are_at_work() -> bool:
            return all(map(self._has_partitions, names))

        until(are_at_work, each=self.poll)
        end = time.monotonic() + after_s
        until(lambda: time.monotonic() > end and are_at_work(), each=self.poll)
        for name in names:
            self._supervisor.kill(name)
            self.killed[name] += 1

    def _has_partitions(self, name: str) -> bool:
        replica = self._supervisor.processes[name]
        return replica.pid is not None and ASSIGNED.search(replica.log.read_bytes(), self._began[name]) is not None
