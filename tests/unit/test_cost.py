"""The costs that a run of the tests prints, and the budgets that end it."""

from __future__ import annotations

import subprocess
import sys

from helpers.cost import BUDGETS_CPU_S, TOLERANCE, Cost, CpuTimes, exceeded
from helpers.docs_blocks import ROOT

BUSY = "import time\nwhile time.process_time() < 0.5: pass\n"


def test_budgets_every_folder_with_tests_has_one() -> None:
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(BUDGETS_CPU_S) == folders


def test_budget_exceeded_by_far_is_named_with_the_folder() -> None:
    limit = TOLERANCE * BUDGETS_CPU_S["unit"]
    assert exceeded({"unit": Cost(cpu_s=limit), "chart": Cost(duration_s=10_000)}) == []
    (sentence,) = exceeded({"unit": Cost(cpu_s=limit + 1)})
    assert sentence.startswith(f"tests/unit took {limit + 1} s of CPU time")


def test_cpu_time_contains_children_that_run_and_that_have_ended() -> None:
    before = CpuTimes.now()
    code = BUSY + "print(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert CpuTimes.now().since(before) > 0.4
        child.communicate(b"\n", timeout=60)
    assert CpuTimes.now().since(before) > 0.4


def test_cpu_time_of_an_idle_server_is_left_out_while_it_runs() -> None:
    before, after, ended = CpuTimes(1.0, {7: 2.0}), CpuTimes(1.5, {7: 4.0, 8: 0.25}), CpuTimes(5.5, {})
    assert after.since(before) == 2.75
    assert after.since(before, idle=before.children) == 0.75
    assert ended.since(before, idle=before.children) == 2.5
