"""The page about joins as a user follows it, from two topics to pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.docs_blocks import ROOT
from helpers.followed_page import Reader

pytestmark = pytest.mark.thorough


def test_join_page_commands_as_written_give_the_documented_counts(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, broker, monkeypatch)
    up, pairs, check = reader.follow(ROOT / "docs" / "how-to" / "join.md", tmp_path / "work")
    assert up.startswith("pipeline.yaml: pipeline ads is valid")
    assert up.count("finished, exit code 0") == 1
    counts = {topic: int(count) for topic, count, *_ in map(str.split, pairs.splitlines())}
    assert counts == {
        "ads.joined": 90_000,
        "ads.unmatched-left": 10_000,
        "ads.unmatched-right": 0,
        "ads.join-late": 0,
    }
    assert "90,000 in both samples, 0 of them in different partition numbers" in check
