"""Plugin of pytest: prints what the tests of each folder cost, and fails a `make test` that costs far too much."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Self

import psutil
import pytest

BUDGETS_CPU_S = {
    "acceptance": 140,
    "chart": 45,
    "integration": 250,
    "laws": 80,
    "spark": 140,
    "unit": 190,
    "vectors": 20,
}
"""CPU seconds of each folder in `make test`. Two cores have 960 s in 8 minutes."""
TOLERANCE = 2
"""A run fails when a folder costs that many times its budget. A busy machine takes more CPU time for the same work."""
SHORT_S = 0.2
"""The CPU time of tests that are shorter is not asked for: it counts with that of the next longer one."""
SERVERS = {"broker", "spark", "database_servers", "registry_server"}
"""Fixtures of servers that run until the end of the session. An idle Kafka with thousands of partitions of other tests
takes a seventh of a core, which does not count for tests without these fixtures."""


@dataclass
class Cost:
    """What the tests of a folder took, with their fixtures."""

    tests: int = 0
    cpu_s: float = 0.0
    duration_s: float = 0.0


class Costs:
    """Sums the costs of the tests of each folder. With several workers, each measures and the controller sums."""

    def __init__(self) -> None:
        self._used: CpuTimes | None = None
        self._started_s = 0.0
        self._of_folders = defaultdict[str, Cost](Cost)

    def pytest_runtest_logstart(self) -> None:
        self._started_s = time.monotonic()
        if self._used is None:
            self._used = CpuTimes.now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown" and time.monotonic() - self._started_s > SHORT_S:
            before, self._used = self._used or CpuTimes.now(), CpuTimes.now()
            has_servers = bool(SERVERS & {*getattr(item, "fixturenames", ())})
            report.cpu_s = self._used.since(before, idle=() if has_servers else before.children)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self._of_folders[PurePosixPath(report.nodeid).parts[1]]
        cost.duration_s += report.duration
        cost.cpu_s += getattr(report, "cpu_s", 0.0)
        cost.tests += report.when == "call"

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        if is_short_tier(session.config) and exceeded(self._of_folders) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._of_folders:
            return
        write = terminalreporter.write_line
        terminalreporter.section("costs per folder")
        write(f"{'folder':<12} {'tests':>6} {'CPU s':>7} {'budget':>7} {'wall s':>7}")
        for folder, cost in sorted(self._of_folders.items()):
            budget = BUDGETS_CPU_S.get(folder, 0)
            write(f"{folder:<12} {cost.tests:>6} {cost.cpu_s:>7.0f} {budget:>7} {cost.duration_s:>7.0f}")
        if is_short_tier(terminalreporter.config):
            for sentence in exceeded(self._of_folders):
                write(sentence, red=True)


def is_short_tier(config: pytest.Config) -> bool:
    return bool(config.getoption("markexpr") == "not thorough")


def exceeded(costs: Mapping[str, Cost]) -> list[str]:
    """Return a sentence for each folder that costs far more than its budget."""
    return [
        f"tests/{folder} took {cost.cpu_s:.0f} s of CPU time, and its budget is {BUDGETS_CPU_S.get(folder, 0)} s: make "
        "the most expensive tests cheaper, or leave them to `make test-rest` with the marker `thorough`"
        for folder, cost in sorted(costs.items())
        if cost.cpu_s > TOLERANCE * BUDGETS_CPU_S.get(folder, 0)
    ]


@dataclass(frozen=True)
class CpuTimes:
    """CPU time of this process with its children that have ended, and of each process that it has started and runs."""

    own_s: float
    children: Mapping[int, float]
    """By process id."""

    @classmethod
    def now(cls) -> Self:
        """Return the times until now."""
        children = {}
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                children[child.pid] = sum(child.cpu_times()[:4])
        return cls(sum(os.times()[:4]), children)

    def since(self, before: CpuTimes, idle: Collection[int] = ()) -> float:
        """Return the CPU time since `before`, without that of the `idle` processes that still run."""
        left_out = {pid for pid in idle if pid in self.children}
        spent_s = self.own_s - before.own_s
        spent_s += sum(cpu_s for pid, cpu_s in self.children.items() if pid not in left_out)
        spent_s -= sum(cpu_s for pid, cpu_s in before.children.items() if pid not in left_out)
        return max(0.0, spent_s)
