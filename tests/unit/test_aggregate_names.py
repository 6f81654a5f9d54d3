"""Only `algorithms/aggregates` names an aggregate. Other code does not contain its name as a string."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from skewless.algorithms.aggregates import AGGREGATES, columns_of

PACKAGE = Path(__file__).parents[2] / "services" / "skewless"
NAMES = {*AGGREGATES, *(column.name for column in columns_of(AGGREGATES.values()))}

OTHER_MEANINGS = {
    "algorithms/grouping/even.py": {"count"},  # field of a numpy record
    "cli/inspect_view.py": {"count", "distinct", "min"},  # fields of the output, minutes
    "cli/results.py": {"last"},  # a value of --window
    "cli/result_selection.py": {"last"},
    "lab/inspection/key_profile.py": {"count"},  # field of the output
    "spark/report/evaluation_report.py": {"max"},  # largest latency
    "spark/report/inspection_report.py": {"count"},  # field of the output
    "cli/smoke_test_command.py": {"count"},  # a parameter: number of records
    "cli/status_text.py": {"min"},  # minutes
    "lab/demo/demo_run.py": {"min"},  # minutes
    "stages/aggregator/step.py": {"first"},  # label of a metric
    "sql/sqlite.py": {"max", "min", "sum"},  # functions of SQL
    "sql/statements.py": {"max", "min", "sum"},  # functions of SQL
    "sql/table.py": {"max", "min", "sum"},  # names of these functions
    "spark/evaluation_json.py": {"max"},  # quantile of latencies
    "spark/key_statistics.py": {"count", "max", "min", "sum"},  # functions of Arrow
    "spark/topic_rows.py": {"max", "min", "sum"},  # functions of Arrow
}
"""Strings that equal the name of an aggregate but have another meaning, by file."""


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "algorithms/aggregates" not in path.as_posix()]


def named_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return NAMES & {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_module_outside_of_the_aggregates_names_none(path: Path) -> None:
    assert named_in(path) == OTHER_MEANINGS.get(path.relative_to(PACKAGE).as_posix(), set())


def test_name_in_a_string_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("def special(name): return name == 'mean'\n", encoding="utf-8")
    assert named_in(module) == {"mean"}
