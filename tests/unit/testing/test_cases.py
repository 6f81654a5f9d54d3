"""Test cases in a file pass if the pipeline computes what they expect, and otherwise show every difference."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from skewless.cli.main import main
from skewless.testing.cases import _equal, _match

START_MS = 1_767_225_600_000
PIPELINE = """
name: p
source: {topic: t}
splitter: {key: {field: k}, value: {field: v, decimals: 1}, time: {field: at, unit: iso8601}}
aggregator: {aggregates: [count, sum, mean]}
"""
RECORDS: list[Any] = [
    {"k": "5", "v": 0.1, "at": "2026-01-01T00:00:01Z"},
    {"k": "5", "v": 0.2, "at": "2026-01-01T00:00:02Z"},
    {"k": "b", "v": 1, "at": "2026-01-01T00:01:02Z"},
]
LATE_AND_INVALID: list[Any] = [*RECORDS, {"k": "c", "v": 1, "at": "2025-01-01"}, {"v": 1, "at": "2026-01-01"}]
ROWS: list[dict[str, Any]] = [
    {"key": "b", "count": 1},
    {"key": 5, "window_start": "2026-01-01T00:00:00Z", "sum": 0.3, "mean": 0.15},
]

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)

    def run_cases(*cases: Any, options: tuple[str, ...] = ()) -> Result:
        file = tmp_path / "cases.yaml"
        file.write_text(yaml.safe_dump({"cases": cases}, sort_keys=False))
        return CliRunner().invoke(main, ["test", "-f", str(tmp_path / "pipeline.yaml"), str(file), *options])

    return run_cases


def test_test_cases_that_hold_pass(run: Run) -> None:
    whole = {"value": RECORDS[0], "partition": 2, "key": "x", "headers": {"h": "1"}, "timestamp": "2026-01-01"}
    late = {"key": "c", "time": "2025-01-01T00:00:00Z", "offset": 3}
    result = run(
        {"name": "rows", "values": RECORDS, "results": ROWS},
        {"name": "few fields", "values": RECORDS, "results": [{"revision": 0}, ROWS[0]]},
        {"name": "counts", "values": LATE_AND_INVALID, "late": 1, "invalid": 1},
        {
            "name": "others",
            "values": LATE_AND_INVALID,
            "late": [late],
            "invalid": [{"offset": 4, "reason": "key field k is missing"}],
        },
        {"name": "whole records", "records": [whole], "results": [{"count": 1, "revision": 0}]},
        {"name": "topics", "values": RECORDS, "topics": {"late": []}},
        {"name": "ahead", "values": RECORDS, "now": "2025-12-31T23:00:00Z", "results": [], "invalid": 3},
    )
    assert (result.exit_code, result.output.count("passed  ")) == (0, 7), result.output


@pytest.mark.parametrize(
    ("expected", "lines"),
    [
        (
            {"results": [{"key": "b", "count": 2, "sum": 1.0}, ROWS[1]]},
            ["results: key b: count is 1, expected 2"],
        ),
        (
            {"results": [{"key": "z", "count": 1}, ROWS[0]]},
            [
                'results: missing {"key":"z","count":1}',
                'results: unexpected {"key":"5","window_start":"2026-01-01T00:00:00Z","window_end":"2026-01-01T00:01',
            ],
        ),
        ({"results": [*ROWS, ROWS[0]]}, ['results: missing {"key":"b","count":1}']),
        ({"results": [ROWS[0], ROWS[1] | {"mean": 0.1500001}]}, ["results: window_start 2026"]),
        ({"results": [ROWS[0], ROWS[1] | {"sum": 0.31}]}, ["results: window_start 2026"]),
        ({"late": 1}, ["late: 0, expected 1"]),
        (
            {"values": LATE_AND_INVALID, "late": 1},
            ["invalid: 1, expected 0", 'invalid: {"topic":"t","partition":0,"offset":4'],
        ),
        ({"topics": {"joined": []}}, ["topics.joined: is not a public topic of JSON (late, aggregates"]),
    ],
    ids=["value", "key", "number of rows", "mean", "sum", "late", "invalid", "topic"],
)
def test_test_case_that_does_not_hold_shows_the_difference(
    run: Run, expected: dict[str, Any], lines: list[str]
) -> None:
    result = run({"name": "good", "values": RECORDS}, {"name": "bad", "values": RECORDS} | expected)
    passed, failed, *shown = result.stdout.splitlines()
    assert (result.exit_code, passed, failed) == (1, "passed  good", "FAILED  bad")
    assert len(shown) == len(lines)
    starts = zip(shown, lines, strict=True)
    assert all(line.strip().replace("key 5, ", "").startswith(start) for line, start in starts), shown
    assert result.stderr == "error: pipeline p: 1 of 2 cases failed\n"


CENTS = PIPELINE.replace("decimals: 1", "decimals: 2").replace("mean]", "mean, largest], top: {n: 1, by: sum}")
PRICES: list[Any] = [
    {"k": "a", "v": "100000000.02", "at": "2026-01-01T00:00:01Z"},
    {"k": "a", "v": "0", "at": "2026-01-01T00:00:02Z"},
    {"k": "a", "v": 100000000.02, "at": "2025-01-01"},
]


@pytest.mark.parametrize(
    ("field", "equal", "unequal"),
    [
        ("sum", 100000000.02, 100000000.01),
        ("sum", "100000000.020", "100000000.01"),
        ("largest", [100000000.02, 0], [100000000.01, 0]),
        ("mean", 50000000.01 * (1 + 1e-12), 50000000.02 * (1 + 1e-8)),
        ("sum", "1.0000000002E+8", "soon"),
    ],
)
@pytest.mark.parametrize("where", ["results", "aggregates", "top"])
def test_test_only_doubles_have_a_tolerance_in_results_and_topics(  # noqa: PLR0913, PLR0917 - pytest passes them by name
    run: Run, tmp_path: Path, where: str, field: str, equal: Any, unequal: Any
) -> None:
    (tmp_path / "pipeline.yaml").write_text(CENTS)
    cases = []
    for name, value in (("equal", equal), ("unequal", unequal)):
        rows = [{field: value}]
        expected = {"results": rows} if where == "results" else {"topics": {where: rows}}
        cases.append({"name": name, "values": PRICES, "late": 1, **expected})
    lines = [line for line in run(*cases).stdout.splitlines() if not line.startswith(" ")]
    assert lines == ["passed  equal", "FAILED  unequal"]


def test_test_late_tuples_and_digits_that_a_double_has_not_are_exact(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(CENTS.replace("decimals: 2", "decimals: 4"))
    digits = [PRICES[0] | {"v": "12345678901234.8901"}]
    result = run(
        {"name": "a", "values": PRICES, "late": [{"value": 100000000.02}]},
        {"name": "b", "values": PRICES, "late": [{"value": 100000000.01}]},
        {"name": "c", "values": digits, "topics": {"aggregates": [{"sum": "12345678901234.8901"}]}},
        {"name": "d", "values": digits, "results": [{"sum": "12345678901234.8902"}]},
        {"name": "e", "values": PRICES, "late": 1, "topics": {"distribution": [{"max_over_avg": 8 + 1e-12}]}},
    )
    lines = [line for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert lines == ["passed  a", "FAILED  b", "passed  c", "FAILED  d", "passed  e"], result.output


def test_test_numeric_text_equals_a_decimal_with_more_digits_than_a_double() -> None:
    number = Decimal("12345678901234567.89")
    assert [_equal(text, number) for text in ("12345678901234567.89", "12345678901234567.890", "x", "")] == [
        True,
        True,
        False,
        False,
    ]
    assert not _equal(12345678901234567.89, number)


@pytest.mark.parametrize("order", [1, -1])
def test_test_rows_that_equal_several_are_assigned_so_that_all_have_one(run: Run, order: int) -> None:
    values = [{"k": name, "v": value, "at": RECORDS[0]["at"]} for name, value in (("a", 1), ("b", 1), ("b", 2))]
    several = [{"sum": 1}, {"key": "a"}][::order]
    path = [{"sum": 2}, {"count": 1, "mean": 1}, {"key": "a"}][::order]
    result = run(
        {"name": "all", "values": values[:2], "results": several},
        {"name": "path", "values": [*values[:2], values[2] | {"k": "c"}], "results": path},
        {"name": "one", "values": [values[0], values[2]], "results": several},
    )
    passed, failed = result.stdout.split("FAILED  one")
    assert passed == "passed  all\npassed  path\n", result.output
    assert [line.split()[1] for line in failed.splitlines()[1:]] == ["missing", "unexpected"], failed


def test_test_assignment_is_a_largest_one() -> None:
    """All assignments of small random rows are tried."""
    random = Random(1)  # noqa: S311 - no secrets
    for _ in range(500):
        actual = [{"a": random.randrange(3), "b": random.randrange(3)} for _ in range(random.randrange(6))]
        fields = [random.sample(["a", "b"], random.randint(1, 2)) for _ in range(random.randrange(6))]
        expected = [{name: random.randrange(3) for name in names} for names in fields]
        fits = [[number for number, row in enumerate(actual) if row.items() >= each.items()] for each in expected]
        choices = itertools.product(*([None, *numbers] for numbers in fits))
        chosen = ([number for number in choice if number is not None] for choice in choices)
        largest = max(len(numbers) for numbers in chosen if len(numbers) == len(set(numbers)))
        matched = _match(expected, actual)
        assert len(matched) == len(set(matched.values())) == largest, (expected, actual)
        assert all(found in fits[number] for number, found in matched.items())


def test_test_assignment_of_thousands_of_rows_is_fast_also_along_a_long_path() -> None:
    started = time.process_time()
    rows = [{"key": f"k{number}", "count": number, "x": int(number > 0)} for number in range(3000)]
    assert _match([dict(row) for row in rows], rows) == {number: number for number in range(3000)}
    # The free row, 0, is the only one that does not equal the last expected one.
    assert len(_match([*rows[1:], {"x": 1}], rows)) == 2999
    # Each of these equals two rows, and has the first one. The last one equals only row 0, so all others move.
    chain = [{"a": number // 2, "b": (number + 1) // 2} for number in range(1200)]
    expected = [{"ab"[number % 2]: (number + 1) // 2} for number in range(1199)]
    assert _match(expected, chain) == {number: number for number in range(1199)}
    assert _match([*expected, {"b": 0}], chain) == {number: (number + 1) % 1200 for number in range(1200)}
    assert time.process_time() - started < 10


def test_test_function_of_the_user_that_depends_on_its_calls_is_a_difference(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEWLESS__SPLITTER__PYTHON", "helpers.user_functions:of_batch")
    result = run({"name": "x", "values": RECORDS, "invalid": 3, "results": []})
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 2)
    assert "splitter.python: gives other tuples for records 0, 1, 2 when it is called again" in result.stdout


def test_test_late_record_of_a_join_is_a_difference_unless_it_is_expected(run: Run, tmp_path: Path) -> None:
    sides = {side: {"topic": side, "id": {"field": "id"}, "time": {"field": "at"}} for side in ("left", "right")}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump({"name": "p", "join": {**sides, "apart_s": 5}}))
    times = {"a": START_MS, "b": START_MS - 60_000}
    records = [{"topic": "left", "value": {"id": name, "at": at}, "key": name} for name, at in times.items()]
    late = {"id": "b", "side": "left", "offset": 1}
    result = run(
        {"name": "row", "records": records, "late": [late]},
        {"name": "number", "records": records, "late": 1},
        {"name": "default", "records": records},
    )
    passed, failed = result.stdout.split("FAILED  default")
    assert (passed, failed.splitlines()[1]) == ("passed  row\npassed  number\n", "  late: 1, expected 0"), result.output


def test_test_json_has_an_object_per_case(run: Run) -> None:
    result = run({"name": "a", "values": RECORDS}, {"name": "b", "values": [], "late": 2}, options=("--json",))
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(case["name"], case["passed"], case["differences"]) for case in shown] == [
        ("a", True, []),
        ("b", False, ["late: 0, expected 2"]),
    ]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"name": "x"}, "cases.0.values: set either values or records"),
        ({"name": "x", "values": [], "records": []}, "cases.0.values: set either values or records"),
        ({"name": "x", "values": [], "result": []}, "cases.0.result: unknown setting; did you mean results?"),
        ({"name": "x", "values": 3}, "cases.0.values: should be a list"),
        ({"name": "x", "records": [{"partition": -1}]}, "cases.0.records.0.partition: should be greater than"),
        (
            {"name": "x", "values": [], "results": [{"key": "a"}, {"cnt": 1}]},
            "cases.0.results.1: unknown field cnt, did you mean count? (known: count, key, mean, revision, sum, window",
        ),
        ({"name": "x", "values": [], "late": [{"ofset": 1}]}, "cases.0.late.0: unknown field ofset, did you mean off"),
        ({"name": "x", "values": [], "invalid": [{"why": 1}]}, "cases.0.invalid.0: unknown field why (known: key, off"),
        (
            {"name": "x", "values": [], "topics": {"aggregates": [{"summ": 1}]}},
            "cases.0.topics.aggregates.0: unknown field summ, did you mean sum?",
        ),
        ({"name": "x", "values": [], "now": "noon"}, "cases.0.now: 'noon' is not a time in ISO 8601"),
    ],
)
def test_test_case_that_is_invalid_is_wrong_use(run: Run, case: dict[str, Any], message: str) -> None:
    result = run(case)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_test_record_that_cannot_be_used_is_named_with_file_and_case(run: Run, tmp_path: Path) -> None:
    record = {"value": RECORDS[0], "topic": "elsewhere"}
    result = run({"name": "good", "values": RECORDS}, {"name": "bad one", "records": [record]})
    assert result.exit_code == 2, result.output
    assert f"{tmp_path}/" in result.stderr
    assert "bad one: records.0: unknown source topic elsewhere" in result.stderr


def test_test_without_a_case_is_wrong_use(run: Run, tmp_path: Path) -> None:
    result = run()
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {tmp_path / 'cases.yaml'}: cases: should have at least 1 element\n",
    )


def test_test_empty_file_of_cases_is_wrong_use_with_the_form_of_cases(run: Run, tmp_path: Path) -> None:
    run()
    (tmp_path / "cases.yaml").write_text("")
    empty = CliRunner().invoke(main, ["test", "-f", str(tmp_path / "pipeline.yaml"), str(tmp_path / "cases.yaml")])
    assert (empty.exit_code, "such as `cases: [{name: empty, values: []}]`" in empty.stderr) == (2, True)


def test_test_without_a_file_of_cases_is_wrong_use(run: Run, tmp_path: Path) -> None:
    missing = CliRunner().invoke(main, ["test", "-f", str(tmp_path / "pipeline.yaml"), str(tmp_path / "none.yaml")])
    assert (missing.exit_code, "none.yaml: cannot be read: No such file" in missing.stderr) == (2, True)


def test_test_name_of_a_case_that_the_terminal_does_not_have_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "cases.yaml").write_text('{"cases": [{"name": "\\u6771\\u4eac \\u00e9", "values": [], "results": []}]}')
    command = [sys.executable, "-m", "skewless", "test", "-f", "pipeline.yaml", "cases.yaml"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"passed  \\u6771\\u4eac \xe9\n"), done.stderr
