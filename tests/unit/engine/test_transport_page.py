"""The page docs/explanation/transport.md names code that exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from helpers.source_files import PACKAGE, assert_none

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "transport.md"
_ROW = re.compile(r"^\| (\d+) \|[^|\n]*\|([^|\n]*)\|[^|\n]*\|$", re.MULTILINE)
_FILE = re.compile(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)")


def way_of_a_record() -> list[tuple[str, str]]:
    """Return the cells with code in the table of a record's way, with their row numbers."""
    section = PAGE.read_text(encoding="utf-8").split("## A record's way from poll to commit\n")[1].split("\n## ")[0]
    return _ROW.findall(section)


def test_transport_page_row_of_the_way_names_existing_functions() -> None:
    assert_none(f"row {row}: {problem}" for row, cell in way_of_a_record() for problem in unknown_names(cell))


def unknown_names(cell: str) -> Iterator[str]:
    files = _FILE.findall(cell)
    if not files:
        yield "names no code"
    for path, names in files:
        tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        yield from (f"{path} has no function {name}" for name in re.findall(r"\w+", names) if name not in functions)


def test_transport_page_way_of_a_record_has_all_rows() -> None:
    assert [int(row) for row, _ in way_of_a_record()] == list(range(1, 16))
