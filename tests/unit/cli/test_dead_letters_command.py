"""The choice of the invalid records that `skewless dead-letters` lists and writes again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from skewless.cli.main import main
from skewless.operations import dead_letters
from skewless.operations.dead_letters import DeadLetter, Position, ReplayReport
from skewless.wire.dead_letters import DeadLetterHeaders

JOIN = """
name: ads
kafka: {bootstrap_servers: "127.0.0.1:1", connect_timeout_s: 0.5}
join:
  left: {topic: impressions, format: json, id: {field: id}, time: {field: time}}
  right: {topic: clicks, format: json, id: {field: id}, time: {field: time}}
  apart_s: 5
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--from: missing; the pipeline reads clicks, impressions: name one of them"),
        (("--from", "click"), "--from: unknown topic click, did you mean clicks? (known: clicks, impressions)"),
    ],
)
def test_replay_of_a_join_without_a_topic_that_it_reads_is_refused(
    options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(JOIN)
    result = CliRunner().invoke(main, ["dead-letters", "replay", "-f", str(file), *options])
    assert (result.exit_code, message in result.stderr) == (2, True), result.output


def test_replay_of_one_side_names_the_command_option_for_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = ReplayReport(other_topics=Counter({"clicks": 1200, "ads.left-records": 1}))
    monkeypatch.setattr(dead_letters, "read_dead_letters", lambda *_: iter(()))
    monkeypatch.setattr(dead_letters, "replay", lambda *_, **_options: report)
    file = tmp_path / "pipeline.yaml"
    file.write_text(JOIN)
    result = CliRunner().invoke(main, ["dead-letters", "replay", "-f", str(file), "--from", "impressions"])
    assert result.stdout.splitlines() == [
        "0 records replayed to impressions",
        "left out: 1,200 records of topic clicks, which --from clicks replays",
        "left out: 1 record of topics that the pipeline writes or no longer reads, which cannot be replayed",
    ]


@pytest.mark.parametrize(
    ("options", "report", "is_named"),
    [
        (("list", "--reason", "longer than"), ReplayReport(), True),
        (("list",), ReplayReport(), False),
        (("list", "--reason", "longer than", "--json"), ReplayReport(), False),
        (("replay", "--reason", "longer than"), ReplayReport(), True),
        (("replay",), ReplayReport(), False),
        (("replay", "--reason", "malformed JSON"), ReplayReport(gone=1), False),
    ],
)
def test_dead_letters_with_a_reason_that_none_has_name_the_list_of_reasons(
    options: tuple[str, ...], report: ReplayReport, *, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "read_dead_letters", lambda *_: iter(()))
    monkeypatch.setattr(dead_letters, "replay", lambda *_, **_options: report)
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nsource: {topic: t}\n")
    result = CliRunner().invoke(main, ["dead-letters", *options, "-f", str(file)])
    named = "no dead letters with this reason: it is compared as a whole" in result.stdout
    assert (result.exit_code, named) == (0, is_named), result.output


def test_show_of_a_record_of_a_topic_that_was_created_again_prints_the_newest_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, headers = Position("t", 0, 1), DeadLetterHeaders("t", "0", "1", "malformed JSON")
    letters = [DeadLetter(0, offset, origin, headers, None, value) for offset, value in enumerate([b"old", b"new"])]
    monkeypatch.setattr(dead_letters, "read_dead_letters", lambda *_: iter(letters))
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nsource: {topic: t}\n")
    result = CliRunner().invoke(main, ["dead-letters", "show", "-f", str(file), "t/0/1"])
    assert (result.exit_code, result.stdout.splitlines()[-1].split()) == (0, ["value", "new"]), result.output


@pytest.mark.parametrize("position", ["clicks", "clicks/3", "clicks/3/x", "clicks/-1/0", "clicks/3/4/5", "/3/4"])
def test_show_of_a_malformed_position_is_wrong_usage(position: str) -> None:
    result = CliRunner().invoke(main, ["dead-letters", "show", position])
    assert (result.exit_code, f"'{position}' is not TOPIC/PARTITION/OFFSET" in result.stderr) == (2, True), (
        result.output
    )
