"""The tutorial as a user follows it: the test writes its files, runs its commands and compares their output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.docs_blocks import ROOT, Block, blocks
from helpers.followed_page import follow_with_own_broker

pytestmark = pytest.mark.thorough

RECORDS = 100_000


def tutorial() -> list[Block]:
    return list(blocks(ROOT / "docs" / "tutorial.md"))


@pytest.fixture
def answers(tmp_path: Path) -> list[str]:
    """Follow the tutorial in an empty folder; returns the output of each shell block."""
    return follow_with_own_broker(ROOT / "docs" / "tutorial.md", tmp_path)


@pytest.mark.broker
def test_tutorial_commands_as_written_give_the_documented_answers(answers: list[str]) -> None:
    _broker, check, cases, _produce, _topics, up, results, top, ticks, _stop, _ = answers
    assert check == "pipeline.yaml: pipeline clicks is valid"
    assert [line.split()[0] for line in cases.splitlines()] == ["passed", "passed"]
    assert up.count("finished, exit code 0") == 5
    shown = next(
        json.loads(block.text) for block in tutorial() if (block.language, block.name) == ("json", "aggregates")
    )
    assert [line.split()[2] for line in results.splitlines()] == ["count"] * 3
    hottest = [json.loads(line) for line in top.splitlines()]
    assert len(hottest) == 3
    assert hottest[-1] | {"revision": shown["revision"]} == shown
    last = json.loads(ticks.splitlines()[-1])
    assert last["run"]["tuples"] == RECORDS
