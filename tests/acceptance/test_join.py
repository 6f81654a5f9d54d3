"""The join of two topics on a real broker: every record has exactly its outcome, at any time of a kill."""
# ruff: noqa: S311 - kills and records are seeded, not secret

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from helpers.joined import Joined, traffic
from helpers.waiting import until
from skewless.config import topic_plan
from skewless.lab.local.supervisor import Supervisor

RECORDS = int(os.environ.get("SKEWLESS_RECORDS", "20000"))
KILLS = int(os.environ.get("SKEWLESS_KILLS", "6"))


def look_after(supervisor: Supervisor, seconds: float) -> None:
    """Start again what dies, for a while."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() > end, each=lambda: supervisor.poll(time.monotonic()))


def test_join_drained_writes_each_pair_and_each_unmatched_record_once(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path)
    for side, log in traffic(RECORDS, 1).items():
        tested.send(side, log)
    tested.flush()
    assert tested.drain().count("finished") == 1
    assert tested.wrong() == {}


def test_join_before_the_aggregation_counts_the_pairs_of_each_item(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path)
    tested.document |= {
        "source": {"topic": f"{tested.settings.name}.joined"},
        "event_time": {"allowed_lateness_s": 10},
        "splitter": {"format": "json", "key": {"field": "id"}, "time": {"field": "left_time"}},
        "aggregator": {"emit": "final"},
    }
    tested.load()
    topic_plan.apply(tested.settings)
    for side, log in traffic(2000, 3).items():
        tested.send(side, log)
    tested.flush()
    tested.drain()
    assert tested.wrong() == {}
    pairs = Counter(record["id"] for record in tested.read("joined"))
    assert Counter({record["key"]: record["count"] for record in tested.read("aggregates")}) == pairs


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_join_killed_while_it_holds_records_emits_no_false_record(broker: str, tmp_path: Path, guarantee: str) -> None:
    tested = Joined(broker, tmp_path)
    tested.document["transport"]["guarantee"] = guarantee
    if guarantee == "at_least_once":  # ids are also restored from keys and headers
        tested.document["join"]["left"]["id"] = {"from": "record_key"}
        tested.document["join"]["right"]["id"] = {"header": "id"}
    tested.document["replicas"] = {"join": 2}
    tested.load()
    logs, chance = traffic(RECORDS, 2), random.Random(2)
    supervisor = tested.supervisor(drain=False)
    try:
        supervisor.start()
        for number in range(KILLS):
            for side, log in logs.items():
                tested.send(side, log[number * len(log) // KILLS : (number + 1) * len(log) // KILLS])
            tested.flush()
            look_after(supervisor, chance.uniform(0.5, 2.0))
            victim = supervisor.processes[f"join-{chance.randrange(2)}"]
            if victim.pid is not None:
                os.kill(victim.pid, 9)
    finally:
        supervisor.stop()
    tested.drain()
    allowed = set() if guarantee == "exactly_once" else {"repeated"}
    assert tested.wrong().keys() <= allowed
