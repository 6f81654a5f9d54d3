"""The keys of each window with the largest results are those of a plain count, also when every stage is killed."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from helpers.kafka import STAGES, Feed, Pipeline, Source, Truth, differences, read, truth, zipf_records

SEED, MOST, SPAN_S, RATE = 5, 400_000, 6_000, 600
LATENESS_S = 20
RANKS = 7


def expected_ranks(answer: Truth) -> dict[str, tuple[str, int, int]]:
    """Return key, count and sum by the key of the record: by sum, and with equal sums by key."""
    windows: defaultdict[int, list[str]] = defaultdict(list)
    for start, key in answer.counts:
        windows[start].append(key)
    ranks = {}
    for start, keys in windows.items():
        keys.sort(key=lambda key, start=start: (-answer.sums[start, key], key.encode()))  # type: ignore[misc]
        for rank, key in enumerate(keys[:RANKS], 1):
            ranks[f"{start}/{rank}"] = (key, answer.counts[start, key], answer.sums[start, key])
    return ranks


def ranks_of(tested: Pipeline, *, updates: bool) -> dict[str, tuple[str, int, int]]:
    """Return the ranks in topic `top`. Without `updates`, each is written once."""
    found: dict[str, dict[str, Any]] = {}
    for record in tested.read("top"):
        row = json.loads(record.value or b"")
        name = f"{row['window_start']}/{row['rank']}"
        assert (record.key, record.timestamp) == (name.encode(), row["window_start"])
        assert name not in found or (updates and row["revision"] > found[name]["revision"])
        found[name] = row
    return {name: (row["key"], row["count"], row["sum"]) for name, row in found.items()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("emit", ["final", pytest.param("updates", marks=pytest.mark.thorough)])
def test_ranks_after_each_stage_is_killed_in_an_open_transaction_are_those_of_a_plain_count(
    broker: str, tmp_path: Path, emit: str
) -> None:
    source = Source(broker, 4)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
        transport={"commit_interval_s": 0.5, "max_poll_records": 2_000, "session_timeout_s": 3},
        aggregator={"emit": emit, "top": {"n": RANKS, "by": "sum"}},
    )
    feed = Feed(source, zipf_records(MOST, 4, SEED, span_s=SPAN_S), rate=RATE)
    with feed, tested.running(armed=True) as supervisor:
        for victim in STAGES:
            tested.kill_in_transaction(supervisor, f"{victim}-0")
        tested.kill_in_transaction(supervisor, "aggregator-0", "top-candidates")
        tested.kill_in_transaction(supervisor, "ranker-0", "top")
        feed.finish()
    tested.drain(limit_s=300)
    answer = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert differences(tested, answer) == []
    assert ranks_of(tested, updates=emit == "updates") == expected_ranks(answer)
    assert min(map(tested.aborted, ("top-candidates", "ranker-changelog"))) > 0
