"""The page about joins as a user follows it, from two topics to pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from helpers.docs_blocks import ROOT
from helpers.followed_page import Reader
from helpers.waiting import WAIT_S

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
    # 1970-01-01 is earlier than all other records, so the record is late.
    producer = Producer({"bootstrap.servers": broker})
    producer.produce("clicks", b"late;0", b"late")
    assert producer.flush(WAIT_S) == 0
    assert reader.run("skewless status -f pipeline.yaml", 1).startswith("pipeline ads: failing")
    reader.run("skewless up -f pipeline.yaml --drain", 1)
    finished = reader.run("skewless status -f pipeline.yaml")
    assert finished.startswith("pipeline ads: finished")
    assert "last 5 min  1 late record, 0 dead letters" in finished
