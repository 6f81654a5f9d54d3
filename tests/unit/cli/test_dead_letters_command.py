"""The topic whose invalid records `skewless dead-letters replay` writes again."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from skewless.cli.main import main

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
