"""Only `algorithms/aggregates` names an aggregate. Other code does not contain its name as a string."""

from __future__ import annotations

from pathlib import Path

from helpers.source_files import PACKAGE, assert_none, place, syntax
from skewless.algorithms.aggregates import AGGREGATES, columns_of

NAMES = {*AGGREGATES, *(column.name for column in columns_of(AGGREGATES.values()))}

OTHER_MEANINGS = {
    "__init__.py": set(AGGREGATES),  # functions of the Python API
    "api/analysis.py": {"count"},  # field of the output
    "api/pipeline.py": {"last"},  # a choice of windows
    "algorithms/grouping/even.py": {"count"},  # field of a numpy record
    "algorithms/windowing/sessions.py": {"max", "min"},  # kinds of merges
    "cli/inspect_view.py": {"count", "distinct"},  # fields of the output
    "cli/plain_text.py": {"min"},  # minutes
    "cli/commands/results.py": {"last"},  # a value of --window
    "operations/results/selection.py": {"last"},
    "lab/inspection/key_profile.py": {"count"},  # field of the output
    "spark/report/evaluation_report.py": {"max"},  # largest latency
    "spark/report/inspection_report.py": {"count"},  # field of the output
    "cli/commands/smoke_test.py": {"count"},  # a parameter: number of records
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


def named_in(path: Path) -> list[tuple[int, str]]:
    """Return the names of aggregates that the module contains, with their lines."""
    return [(line, text) for line, text in syntax(path).strings if text in NAMES]


def test_module_outside_of_the_aggregates_names_none() -> None:
    of_another = {PACKAGE / path: names for path, names in OTHER_MEANINGS.items()}
    found = {path: named_in(path) for path in modules()}
    named = (
        f"{place(path, line)}: {name}"
        for path, names in found.items()
        for line, name in names
        if name not in of_another.get(path, ())
    )
    outdated = (
        f"{place(path, 1)}: OTHER_MEANINGS has {name}, the file does not"
        for path, names in of_another.items()
        for name in names - {name for _, name in found.get(path, ())}
    )
    assert_none((*named, *outdated))


def test_name_in_a_string_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("def special(name): return name == 'mean'\n", encoding="utf-8")
    assert named_in(module) == [(1, "mean")]
