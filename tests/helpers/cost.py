"""Plugin of pytest: prints what the tests of each folder cost, and fails a `make test` that costs far too much.

With `--durations=N` it also prints the N tests that took the most CPU time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import psutil
import pytest

BUDGETS_CPU_S = {
    "acceptance": 160,
    "chart": 70,
    "integration": 350,
    "laws": 100,
    "spark": 150,
    "unit": 180,
    "vectors": 20,
}
"""CPU seconds of each folder in `make test`, as measured. Two cores have 1,200 s in 10 minutes."""
TOLERANCE = 2
"""A run fails when a folder costs that many times its budget. A busy machine takes more CPU time for the same work."""
SHORT_S = 0.2
"""The CPU time of tests that are shorter is not asked for: it counts with that of the next longer one."""


@dataclass
class Cost:
    """What the tests of a folder took, with their fixtures."""

    tests: int = 0
    cpu_s: float = 0.0
    duration_s: float = 0.0


class Costs:
    """Sums the costs of the tests of each folder. With several workers, each measures and the controller sums."""

    def __init__(self) -> None:
        self._cpu_s: float | None = None
        self._started_s = 0.0
        self._of_folders = defaultdict[str, Cost](Cost)
        self._of_tests = defaultdict[str, float](float)

    def pytest_runtest_logstart(self) -> None:
        self._started_s = time.monotonic()
        if self._cpu_s is None:
            self._cpu_s = used_cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown" and time.monotonic() - self._started_s > SHORT_S:
            before, self._cpu_s = self._cpu_s or 0.0, used_cpu_s()
            report.cpu_s = max(0.0, self._cpu_s - before)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self._of_folders[PurePosixPath(report.nodeid).parts[1]]
        cpu_s = getattr(report, "cpu_s", 0.0)
        cost.duration_s += report.duration
        cost.cpu_s += cpu_s
        self._of_tests[report.nodeid] += cpu_s
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
        most = terminalreporter.config.getoption("durations")
        if most is not None:
            terminalreporter.section("tests with the most CPU time")
            # As for pytest, 0 means all.
            for nodeid, cpu_s in sorted(self._of_tests.items(), key=lambda each: -each[1])[: most or None]:
                write(f"{cpu_s:>7.1f} s {nodeid}")


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


def used_cpu_s() -> float:
    """Return the CPU time of this process and of its children, also of those that have ended."""
    total = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(child.cpu_times()[:4])
    return total
