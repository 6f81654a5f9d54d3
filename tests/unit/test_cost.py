"""The costs that a run of the tests prints, and the budgets that end it."""

from __future__ import annotations

import subprocess
import sys

from helpers.cost import BUDGETS_CPU_S, TOLERANCE, Cost, exceeded, used_cpu_s
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


def test_used_cpu_contains_children_that_run_and_that_have_ended() -> None:
    before_s = used_cpu_s()
    code = BUSY + "print(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert used_cpu_s() - before_s > 0.4
        child.communicate(b"\n", timeout=60)
    assert used_cpu_s() - before_s > 0.4
