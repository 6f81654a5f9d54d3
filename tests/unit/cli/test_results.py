"""Selection, order and form of the results that `skewless results` prints."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Message

from helpers.aggregates import Digits, install
from helpers.messages import message
from skewless.cli.main import main
from skewless.operations.results import topic

PIPELINE = "name: p\nsource: {topic: t}\naggregator: {aggregates: [count, sum]}\n"
MINUTE = 60_000


def record(window: int, key: str, count: int, revision: int = 0) -> dict[str, Any]:
    times = {"window_start": window * MINUTE, "window_end": (window + 1) * MINUTE}
    return {"key": key, **times, "count": count, "sum": -count, "revision": revision}


def stored(window: int, key: str, *values: int) -> Message:
    """Return a record of topic `aggregates`: the result with these values, or a tombstone."""
    value = json.dumps(record(window, key, *values)).encode() if values else None
    return message(0, value, key=f"{window * MINUTE}/{key}".encode())


MESSAGES = [
    stored(0, "a", 5),
    stored(0, "deleted", 4),
    stored(1, "a", 1),
    stored(1, "deleted", 7, 2),
    stored(1, "b", 2),
    stored(1, "deleted"),
    stored(1, "a", 3, 1),
    stored(2, "c\x1b", 1),
]


class Note(Digits):
    """An aggregate whose result is a text."""

    name = "note"

    def result_type(self, decimals: int) -> pa.DataType:
        return pa.string()


NOTE = Note()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(topic, "OffsetReader", lambda _kafka: SimpleNamespace(ranges=lambda _topic: {}))
    monkeypatch.setattr(topic, "read_ranges", lambda _kafka, _topic, _ranges: [(0, MESSAGES)])
    monkeypatch.setattr(
        topic, "closed_everywhere", lambda _settings, stage: {"aggregator": 2, "ranker": 1}[stage] * MINUTE
    )
    monkeypatch.setattr(topic, "require_topic", lambda _settings, _topic: None)
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    return path


def run(file: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["results", "-f", str(file), *options])


def shown(file: Path, *options: str) -> list[tuple[int, str, int]]:
    lines = run(file, *options, "--json").stdout.splitlines()
    return [(one["window_start"] // MINUTE, one["key"], one["count"]) for one in map(json.loads, lines)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [(1, "a", 3), (1, "b", 2)]),
        (("--window", "open"), [(2, "c\x1b", 1)]),
        (("--window", "1970-01-01T00:00:30"), [(0, "a", 5), (0, "deleted", 4)]),
        (("--window", "all", "--key", "a"), [(0, "a", 5), (1, "a", 3)]),
        (("--window", "all", "--top", "1"), [(0, "a", 5), (1, "a", 3), (2, "c\x1b", 1)]),
        (("--top", "1", "--by", "sum"), [(1, "b", 2)]),
    ],
)
def test_results_newest_revisions_of_the_chosen_windows_are_shown(
    file: Path, options: tuple[str, ...], expected: list[tuple[int, str, int]]
) -> None:
    assert shown(file, *options) == expected


@pytest.mark.parametrize(
    ("closed_until", "options", "is_noted"),
    [
        (None, (), True),
        (MINUTE - 1, (), True),
        (MINUTE, (), False),
        (None, ("--window", "open"), False),
        (None, ("--window", "all"), False),
    ],
)
def test_results_of_a_window_that_is_open_because_none_is_closed_are_noted(
    file: Path, monkeypatch: pytest.MonkeyPatch, closed_until: int | None, options: tuple[str, ...], *, is_noted: bool
) -> None:
    monkeypatch.setattr(topic, "closed_everywhere", lambda _settings, _stage: closed_until)
    result = run(file, *options, "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith("note: no window is closed, so these results may still change") == is_noted


def test_results_window_that_closes_during_the_read_is_not_the_last_closed_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = [2 * MINUTE]

    def read(_kafka: object, _topic: str, _ranges: object) -> Iterator[tuple[int, list[Message]]]:
        yield 0, MESSAGES
        closed.append(3 * MINUTE)

    monkeypatch.setattr(topic, "read_ranges", read)
    monkeypatch.setattr(topic, "closed_everywhere", lambda _settings, _stage: closed[-1])
    assert shown(file) == [(1, "a", 3), (1, "b", 2)]


def test_results_last_ranks_are_those_of_the_last_window_that_the_ranking_has_closed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(PIPELINE.replace("sum]", "sum], top: {n: 3, by: count}"))
    ranks = [
        message(0, json.dumps(record(window, "a", 1) | {"rank": 1}).encode(), key=b"%d" % window) for window in (0, 1)
    ]
    monkeypatch.setattr(topic, "read_ranges", lambda _kafka, _topic, _ranges: [(0, ranks)])
    assert shown(file, "--ranks") == [(0, "a", 1)]


@pytest.mark.parametrize(
    "other", [{"window_start": "2026-01-01T00:00:00Z"}, {"window_end": None}, {"revision": "1"}, {"key": 5}]
)
def test_results_among_records_with_fields_of_other_types_are_shown_with_a_warning(
    file: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, object]
) -> None:
    foreign = message(0, json.dumps(record(1, "a", 1) | other).encode(), key=b"x")
    monkeypatch.setattr(topic, "read_ranges", lambda _kafka, _topic, _ranges: [(0, [*MESSAGES, foreign])])
    result = run(file, "--json")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2), result.output
    assert "has records that are not results: partition 0 offset 0" in result.stderr


def test_results_csv_has_a_header(file: Path) -> None:
    lines = run(file, "--csv").stdout.splitlines()
    assert lines == ["window_start,window_end,key,count,sum,revision", "60000,120000,a,3,-3,1", "60000,120000,b,2,-2,0"]


def test_results_csv_has_the_parts_of_a_composite_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(PIPELINE + "splitter: {key: {fields: [{field: shop}, {field: day}]}}\n")
    key = '["s","1"]'
    value = json.dumps(record(1, key, 3) | {"shop": "s", "day": "1"}).encode()
    stored_result = message(0, value, key=f"{MINUTE}/{key}".encode())
    monkeypatch.setattr(topic, "read_ranges", lambda _kafka, _topic, _ranges: [(0, [stored_result])])
    header, row = csv.reader(run(file, "--csv").stdout.splitlines())
    assert header == ["window_start", "window_end", "key", "shop", "day", "count", "sum", "revision"]
    assert row == ["60000", "120000", key, "s", "1", "3", "-3", "0"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "1970-01-01T00:01:00Z  a  count 3  mean -\n1970-01-01T00:01:00Z  b  count 2  mean -\n"),
        (
            ("--csv",),
            "window_start,window_end,key,count,mean,revision\n60000,120000,a,3,,1\n60000,120000,b,2,,0\n",
        ),
        (("--by", "mean", "--top", "1"), "1970-01-01T00:01:00Z  a  count 3  mean -\n"),
    ],
)
def test_results_from_before_an_aggregate_was_added_lack_it(
    file: Path, options: tuple[str, ...], expected: str
) -> None:
    file.write_text(file.read_text().replace("sum", "mean"))
    result = run(file, *options)
    assert (result.exit_code, result.stdout) == (0, expected), result.output


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "1970-01-01T00:00:00Z  a  count 2  largest [3.50,1.25]\n1970-01-01T00:00:00Z  b  count 1  largest -\n"),
        (
            ("--csv",),
            'window_start,window_end,key,count,largest,revision\n0,60000,a,2,"[3.50,1.25]",0\n0,60000,b,1,,0\n',
        ),
    ],
)
def test_results_list_is_json_and_null_is_absent_in_each_form(
    file: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], expected: str
) -> None:
    fields = '"window_start": 0, "window_end": 60000, "revision": 0'
    values = (
        f'{{"key": "a", {fields}, "count": 2, "largest": [3.50, 1.25]}}',
        f'{{"key": "b", {fields}, "count": 1, "largest": null}}',
    )
    records = [message(0, value.encode(), key=key) for key, value in zip((b"0/a", b"0/b"), values, strict=True)]
    monkeypatch.setattr(topic, "read_ranges", lambda _kafka, _topic, _ranges: [(0, records)])
    file.write_text(
        PIPELINE.replace("sum", "{largest: value, n: 2}")
        + "splitter: {key: {from: record_key}, value: {field: v, decimals: 2, missing: skip}}\n"
    )
    result = run(file, "--window", "all", *options)
    assert (result.exit_code, result.stdout) == (0, expected), result.output


def test_results_window_without_ranks_is_a_failed_check(file: Path) -> None:
    file.write_text(PIPELINE.replace("sum]", "sum], top: {n: 3, by: count}"))
    result = run(file, "--ranks", "--window", "2020-01-01")
    assert (result.exit_code, "no results for window 2020-01-01" in result.stderr) == (1, True), result.output


def test_results_control_characters_do_not_reach_the_terminal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ("note", f"{__name__}:NOTE"))
    value = json.dumps({**record(2, "c\x1b", 1), "note": "a\x1b[2J\nb"})
    monkeypatch.setattr(topic, "read_ranges", lambda *_arguments: [(0, [message(0, value.encode(), key=b"120000/c")])])
    file.write_text(PIPELINE.replace("sum", "note"))
    assert run(file, "--window", "open").stdout == "1970-01-01T00:02:00Z  c?  count 1  note a?[2J?b\n"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--by", "max"), 2, "--by: max is not a result of this pipeline: count, sum"),
        (("--window", "now"), 2, "--window: 'now' must be last, open, all, or"),
        (("--json", "--csv"), 2, "leave one out"),
        (("--follow", "--top", "3"), 2, "--top: not with --follow"),
        (("--follow", "--by", "sum"), 2, "--by: not with --follow, because results are printed as they arrive"),
        (("--follow", "--window", "last"), 2, "--window: not with --follow, because new results of all windows"),
        (("--key", "z"), 1, "has no results of key z"),
        (("--window", "2020-01-01"), 1, "no results for window 2020-01-01"),
    ],
)
def test_results_wrong_use_or_nothing_to_show_is_one_line(
    file: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    result = run(file, *options)
    assert (result.exit_code, message in result.stderr) == (code, True), result.output


def test_results_follow_with_a_key_prints_later_results(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of --window is no window that the user has chosen."""
    monkeypatch.setattr(topic, "later", lambda _settings, _key, _warn: iter([[record(3, "z", 1)]]))
    lines = run(file, "--follow", "--key", "z").stdout.splitlines()
    assert lines == ["1970-01-01T00:03:00Z  z  count 1  sum -1"]


def test_results_window_that_begins_within_a_second_shows_its_milliseconds(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions of a key may begin in the same second."""
    times = {"window_start": 1_500, "window_end": 2_500}
    session = message(0, json.dumps(record(0, "a", 5) | times).encode(), key=b"1500/a")
    monkeypatch.setattr(topic, "read_ranges", lambda _kafka, _topic, _ranges: [(0, [session])])
    assert run(file, "--window", "all").stdout == "1970-01-01T00:00:01.500Z  a  count 5  sum -5\n"
