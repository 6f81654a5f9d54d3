"""`skewless simulate`: options, results, files, and exit codes."""

from __future__ import annotations

import codecs
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers.hashing import hash64, worker_of
from skewless.algorithms.grouping import GROUPING_NAMES
from skewless.cli import main
from skewless.lab import progress

KEYS = ["a", "b", "", "ü", "a", "東京", "a"]


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    path = tmp_path / "stream.tsv"
    path.write_text("".join(f"{1000 * row}\t{key}\n" for row, key in enumerate(KEYS)))
    return path


def simulate(path: object, *args: object, stdin: str | None = None) -> Result:
    return run(path, "-q", *args, stdin=stdin)


def run(path: object, *args: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main.main, ["simulate", "--input", str(path), *map(str, args)], input=stdin)


def entries(result: Result) -> list[dict[str, Any]]:
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_simulate_command_assignments_file_has_one_worker_per_line(stream: Path, tmp_path: Path) -> None:
    out = tmp_path / "workers.txt"
    (line,) = entries(simulate(stream, "--grouping", "key", "--workers", 3, "--assignments", out, "--json"))
    assert out.read_text().splitlines() == [str(worker_of(hash64(key, 13), 3)) for key in KEYS]
    assert (line["grouping"], line["workers"], line["routers"], line["tuples"], line["keys"]) == ("key", 3, 1, 7, 5)
    assert line["p1"] == 3 / 7


def test_simulate_command_several_groupings_and_workers_run_every_combination(stream: Path) -> None:
    result = simulate(stream, *("--grouping", "key,shuffle", "--grouping", "key", "--workers", 2, "--workers", "5, 9"))
    assert result.exit_code == 0
    lines = entries(simulate(stream, "--grouping", "key,shuffle", "--workers", 2, "--workers", "5,9", "--json"))
    runs = [("key", 2), ("key", 5), ("key", 9), ("shuffle", 2), ("shuffle", 5), ("shuffle", 9)]
    assert [(line["grouping"], line["workers"]) for line in lines] == runs


def test_simulate_command_grouping_all_runs_every_registered_grouping(stream: Path) -> None:
    lines = entries(simulate(stream, "--grouping", "all", "--workers", 4, "--json", "--routers", 2))
    assert [line["grouping"] for line in lines] == list(GROUPING_NAMES)
    assert {line["routers"] for line in lines} == {2}


@pytest.mark.parametrize("grouping", GROUPING_NAMES)
@pytest.mark.parametrize("rules", ["published", "reference"])
def test_simulate_command_rules_are_accepted_with_each_grouping(stream: Path, grouping: str, rules: str) -> None:
    (line,) = entries(simulate(stream, "--grouping", grouping, "--workers", 3, "--rules", rules, "--json"))
    assert line["grouping"] == grouping


def test_simulate_command_table_fits_a_terminal_and_names_every_run(stream: Path) -> None:
    lines = simulate(stream, "--grouping", "all", "--workers", 4).stdout.splitlines()
    assert lines[0] == "7 tuples, 5 keys, the hottest has 42.86%; 1 router, windows of 60 s"
    for row, name in enumerate(GROUPING_NAMES):
        assert lines[3 + row].split()[:2] == [name, "4"]
    assert all(len(line) <= 80 for line in lines[1 : 3 + len(GROUPING_NAMES)])


def test_simulate_command_stream_is_read_from_standard_input(stream: Path) -> None:
    (line,) = entries(simulate("-", "--grouping", "key", "--workers", 2, "--json", stdin=stream.read_text()))
    assert line["tuples"] == len(KEYS)


def test_simulate_command_reports_progress_unless_it_is_hidden(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.0)
    options = ("--grouping", "key", "--workers", 2)
    size = stream.stat().st_size
    assert run(stream, *options).stderr.startswith(f"{size} of {size} bytes, ")
    assert run("-", *options, stdin=stream.read_text()).stderr.startswith(f"{size} bytes, ")
    assert run(stream, *options, "-q").stderr == ""


def test_simulate_command_window_option_sets_the_window_length(stream: Path) -> None:
    (line,) = entries(simulate(stream, "--grouping", "key", "--workers", 2, "--window", 2, "--json"))
    assert (line["window_s"], line["windows"]) == (2, 4)


@pytest.mark.parametrize("content", [b"", codecs.BOM_UTF8])
def test_simulate_command_file_without_lines_is_refused_with_its_name(content: bytes, tmp_path: Path) -> None:
    empty = tmp_path / "empty.tsv"
    empty.write_bytes(content)
    result = simulate(empty, "--grouping", "key", "--workers", "2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {empty}: is empty; give a file of `time_ms TAB key` lines\n"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--grouping", "nope", "--workers", "2"], "--grouping: unknown grouping nope (known: all, consistent"),
        (["--grouping", ",", "--workers", "2"], "--grouping: names no grouping"),
        (["--grouping", "key", "--workers", "1" * 5000], f"--workers: '{'1' * 5000}' must be an integer"),
        (["--grouping", "key", "--workers", "0,x"], "--workers: '0' must be an integer from 1 to 1024"),
        (["--grouping", "key", "--workers", "2,3", "--assignments", "x"], "--assignments: there are 2 runs"),
        (["--grouping", "key", "--workers", "2", "--option", "nope=1"], "--option: nope: unknown setting"),
        (["--grouping", "key", "--workers", "2", "--option", "router.nope={"], "--option: nope: unknown setting"),
        (
            ["--grouping", "key", "--workers", "2", "--option", "router.clock={"],
            "--option: clock: should be 'processing' or 'event'",
        ),
        (["--grouping", "key", "--workers", "2", "--option", f"clock={'[' * 900}"], "--option: clock: should be"),
        (["--grouping", "key", "--workers", "2", "--option", "nope"], "--option: 'nope' is not NAME=VALUE"),
        (["--grouping", "key", "--workers", "2", "--option", "clock.x=1"], "--option: clock.x: clock has no settings"),
        (["--grouping", "key", "--workers", "2", "--assignments", "/nowhere/x"], "--assignments: /nowhere/x"),
        (["--grouping", "key", "--workers", "2", "--assignments", "/dev/full"], "--assignments: /dev/full: cannot be"),
        (["--grouping", "key", "--workers", "2", "-f", "/nowhere.yaml"], "/nowhere.yaml: cannot be read"),
    ],
)
def test_simulate_command_invalid_arguments_end_with_a_remedy(stream: Path, args: list[str], problem: str) -> None:
    result = simulate(stream, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: {problem}" in result.stderr


@pytest.mark.parametrize("window", ["nan", "inf", "1e300", "0"])
def test_simulate_command_invalid_window_length_is_refused(stream: Path, window: str) -> None:
    result = simulate(stream, "--grouping", "key", "--workers", 2, "--window", window)
    assert (result.exit_code, "Invalid value for '--window'" in result.stderr) == (2, True)


def test_simulate_command_assignments_into_the_input_file_are_refused(stream: Path) -> None:
    result = simulate(stream, "--grouping", "key", "--workers", 2, "--assignments", stream)
    assert (result.exit_code, stream.stat().st_size > 0) == (2, True)


@pytest.mark.parametrize("text", ["", "1000\ta\n2000\n"], ids=["empty", "malformed line"])
def test_simulate_command_input_that_is_refused_leaves_no_assignments(text: str, tmp_path: Path) -> None:
    path, out, link = tmp_path / "stream.tsv", tmp_path / "workers.txt", tmp_path / "link"
    path.write_text(text)
    assert simulate(path, "--grouping", "key", "--workers", 2, "--assignments", out).exit_code == 2
    assert not out.exists()
    out.touch()
    link.symlink_to(out)
    assert simulate(path, "--grouping", "key", "--workers", 2, "--assignments", link).exit_code == 2
    assert link.exists()


def test_simulate_command_malformed_line_ends_with_2_and_its_number(stream: Path) -> None:
    result = simulate("-", "--grouping", "key", "--workers", 2, stdin="1\ta\nb\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: standard input: line 2: is not")


def test_simulate_command_with_a_pipeline_file_refuses_an_unknown_option(stream: Path, tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text("name: words\nsource: {topic: text}\nrouter: {clock: processing}\n")
    given = ("--grouping", "key", "--workers", 2, "--json", "-f", pipeline)
    assert simulate(stream, *given).exit_code == 0
    assert simulate(stream, *given, "--option", "router.nope=event").exit_code == 2


def test_simulate_command_rules_option_sets_the_rules_of_dynamic_key(tmp_path: Path) -> None:
    path = tmp_path / "stream.tsv"
    path.write_text("".join(f"{100 * row}\tk{row * row % 7}\n" for row in range(3000)))
    chosen = {}
    for name, option in {
        "default": (),
        "published": ("--rules", "published"),
        "reference": ("--rules", "reference"),
        "by option": ("--option", "dynamic_key.rules=reference"),
    }.items():
        out = tmp_path / name
        given = ("--grouping", "dynamic_key", "--workers", 20, "--assignments", out)
        assert simulate(path, *given, *option).exit_code == 0
        chosen[name] = out.read_text()
    assert chosen["default"] == chosen["published"] != chosen["reference"] == chosen["by option"]


def test_simulate_command_interrupt_ends_with_130() -> None:
    args = [sys.executable, "-m", "skewless", "simulate", "--input", "-", "--grouping", "key", "--workers", "2"]
    with subprocess.Popen(
        args, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"1\ta\n" * 1_000_000)  # it handles signals once it reads its input
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        assert process.wait(timeout=60) == 130
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize(("window_s", "rows"), [(1, 20), (8, 3), (10, 2), (60, 2), (75, 2)])
def test_simulate_pane_of_local_aggregation_divides_the_window(window_s: float, rows: int, tmp_path: Path) -> None:
    path = tmp_path / "keys.tsv"
    path.write_text("".join(f"{second * 1000}\ta\n" for second in range(20)))
    (line,) = entries(simulate(path, "--grouping", "local", "--workers", 1, "--window", window_s, "--json"))
    assert line["rows"] == rows
