"""The page of faults is complete: it contains all faults of the tests, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from chaos.table import FAULTS
from helpers.docs_blocks import ROOT
from helpers.source_files import assert_none

PAGE = (ROOT / "docs" / "explanation" / "faults.md").read_text()


def rows(header: str) -> Iterator[list[str]]:
    """Yield the cells of all rows of tables with this name of the first column."""
    inside = False
    for line in PAGE.splitlines():
        inside = line.startswith(f"| {header} |") or (inside and line.startswith("|"))
        if inside and not line.startswith((f"| {header} |", "| ---")):
            yield [cell.strip() for cell in line.strip("|").split("|")]


FAULT_ROWS = list(rows("fault"))
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
CHAOS = re.compile(r"`chaos:([\w-]+)`")


def names(path: Path) -> set[str]:
    """Return the names that a module defines: functions, methods after the names of their classes, assigned names."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{method.name}" for method in node.body if isinstance(method, ast.FunctionDef)}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_fault_table_lists_exactly_the_faults_of_the_harness() -> None:
    assert set(CHAOS.findall(PAGE)) == set(FAULTS)


def test_fault_table_named_tests_exist() -> None:
    named = sorted(set(TEST.findall(PAGE)))
    defined = {file: names(ROOT / file) for file, _ in named if (ROOT / file).is_file()}
    assert_none(
        f"docs/explanation/faults.md: {file}::{name}" for file, name in named if name not in defined.get(file, ())
    )


def test_fault_table_rows_name_a_test_or_a_reason_for_none() -> None:
    assert_none(
        f"docs/explanation/faults.md: {fault}: {shown}"
        for fault, _, _, shown, _ in FAULT_ROWS
        if not (TEST.search(shown) or CHAOS.search(shown) or re.search(r"not covered[^:]*: .{20}", shown))
    )
