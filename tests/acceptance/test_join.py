"""The join of two topics on a real broker: every record has exactly its outcome, at any time of a kill."""
# ruff: noqa: S311 - kills and records are seeded, not secret

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from helpers.docs_blocks import ROOT
from helpers.joined import Joined, traffic
from helpers.kafka import read
from helpers.killer import ASSIGNED
from helpers.stage_hosts import stage_host
from helpers.tiers import thorough_except
from helpers.waiting import WAIT_S, until
from skewless.algorithms.join.window_join import Side
from skewless.cli.main import main
from skewless.config import loader, topic_plan
from skewless.lab.datasets import DatasetOptions, find_dataset
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess
from skewless.lab.local.supervisor import Supervisor

RECORDS = int(os.environ.get("SKEWLESS_RECORDS", "20000"))
PAUSE = float(os.environ.get("SKEWLESS_PAUSE", "1"))
"""Seconds between two kills, about. Delayed records come after as many times this as there are kills."""
KILLS = int(os.environ.get("SKEWLESS_KILLS", "6"))


@pytest.mark.thorough
def test_join_drained_writes_each_pair_and_each_unmatched_record_once(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path)
    for side, log in traffic(RECORDS, 1).items():
        tested.send(side, log)
    tested.flush()
    assert tested.drain().count("finished") == 1
    assert tested.wrong() == {}


@pytest.mark.thorough
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


UNEQUAL = {Side.LEFT: 3, Side.RIGHT: 2}


@pytest.mark.thorough
def test_repartitioned_join_drained_writes_each_record_once(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path, UNEQUAL, repartition="always")
    for side, log in traffic(RECORDS // 4, 4).items():
        tested.send(side, log)
    tested.flush()
    assert tested.drain().count("finished") == 3
    assert tested.wrong_repartitioned() == {}


@pytest.mark.thorough
def test_repartitioned_join_killed_while_it_holds_records_emits_no_false_record(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path, UNEQUAL, repartition="always")
    tested.document["replicas"] = {"join": 2, "left": 2, "right": 1}
    tested.load()
    tested.send_while_killing(traffic(RECORDS, 5), random.Random(5), times=KILLS, processes=2)
    tested.drain()
    assert tested.wrong_repartitioned() == {}


class Members:
    """Processes of the join that come and go. Each is started again when it was killed."""

    def __init__(self, tested: Joined) -> None:
        self._tested = tested
        self._children: list[ChildProcess] = []

    def set(self, count: int) -> None:
        """Start processes, or stop some in an orderly way."""
        while len(self._children) < count:
            self._children.append(self._start(len(self._children)))
        for child in self._children[count:]:
            child_process.stop(child, grace_s=WAIT_S)
            assert child.returncode in {0, -signal.SIGTERM}  # the latter if it was still starting
        del self._children[count:]

    def kill(self, instance: int) -> None:
        """Kill a process that has partitions, and start it again."""
        until(lambda: ASSIGNED.search(self._log(instance).read_bytes()))
        child_process.kill(self._children[instance])
        self._children[instance] = self._start(instance)

    def _start(self, instance: int) -> ChildProcess:
        run = ["run", "join", "--instance", str(instance), "--file", str(self._tested.file)]
        self._log(instance).unlink(missing_ok=True)
        return stage_host().start(f"join-{instance}", run, os.environ, log=self._log(instance))

    def _log(self, instance: int) -> Path:
        return self._tested.folder / f"member-{instance}.log"


@pytest.mark.thorough
def test_join_right_side_delayed_and_a_partition_stopped_with_processes_that_come_and_go_is_exact(
    broker: str, tmp_path: Path
) -> None:
    tested = Joined(broker, tmp_path, dict.fromkeys(Side, 3), max_watermark_drift_s=3)
    logs, chance = traffic(RECORDS, 6), random.Random(6)
    kills = max(1, KILLS // 3)
    members = Members(tested)

    def send(side: Side, part: int, partitions: tuple[int, ...] = (0, 1, 2)) -> None:
        log = logs[side][part * len(logs[side]) // 3 : (part + 1) * len(logs[side]) // 3]
        tested.send(side, [event for event in log if int(event.id) % 3 in partitions])

    def disturb(processes: int) -> None:
        """Kill members for a while. Without any, only let the time pass."""
        tested.flush()
        members.set(processes)
        for _ in range(kills):
            time.sleep(chance.uniform(0.5, 1.5) * PAUSE)
            members.kill(chance.randrange(processes))
        time.sleep(PAUSE)

    try:
        send(Side.LEFT, 0)  # the right side is delayed
        disturb(2)
        send(Side.RIGHT, 0)
        send(Side.LEFT, 1)
        send(Side.RIGHT, 1, partitions=(0, 2))  # one partition is stopped
        disturb(3)
        send(Side.RIGHT, 1, partitions=(1,))
        for side in Side:
            send(side, 2)
        disturb(1)
    finally:
        members.set(0)
    tested.drain()
    assert tested.wrong() == {}


@pytest.mark.thorough
def test_ad_clicks_example_counts_the_clicked_impressions_of_each_item(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, file = f"j-{uuid.uuid4().hex[:8]}", ROOT / "deploy" / "examples" / "ad-clicks.yaml"
    names = {"NAME": name, "SOURCE__TOPIC": f"{name}.joined"}
    names |= {"JOIN__LEFT__TOPIC": f"{name}-impressions", "JOIN__RIGHT__TOPIC": f"{name}-clicks"}
    for path, value in (names | {"KAFKA__BOOTSTRAP_SERVERS": broker, "AGGREGATOR__EMIT": "final"}).items():
        monkeypatch.setenv(f"SKEWLESS__{path}", value)
    options = ("--records", "5000", "--disorder-ms", "1000", "--duplicates", "0.02", "--missing", "0.02")
    for side in ("impressions", "clicks"):
        produced = CliRunner().invoke(main, ["produce", side, "--partitions", "4", *options, "-f", str(file)])
        assert produced.exit_code == 0, produced.output
    settings = loader.load(file, os.environ)
    assert settings.join is not None
    topic_plan.apply(settings)
    supervisor = Supervisor(file, settings, drain=True, logs=tmp_path, host=stage_host())
    try:
        supervisor.start()
        until(lambda: supervisor.done, each=lambda: supervisor.poll(time.monotonic()))
    finally:
        supervisor.stop()
    chosen = DatasetOptions(records=5000, disorder_ms=1000, duplicates=0.02, missing=0.02)
    left, right = (
        Counter(line.split(b";")[0] for batch in find_dataset(side).batches(chosen) for line in batch.values)
        for side in ("impressions", "clicks")
    )
    items = {
        line.split(b";")[0]: line.split(b";")[2].decode()
        for batch in find_dataset("impressions").batches(chosen)
        for line in batch.values
    }
    expected: Counter[str] = Counter()
    for ad, count in (left & right).items():
        expected[items[ad]] += count
    found: Counter[str] = Counter()
    for record in read(broker, settings.topic("aggregates")):
        result = msgspec.json.decode(record.value or b"")
        found[result["key"]] += result["count"]
    assert found == expected


@pytest.mark.parametrize("guarantee", thorough_except(["exactly_once"], ["exactly_once", "at_least_once"]))
def test_join_killed_while_it_holds_records_emits_no_false_record(broker: str, tmp_path: Path, guarantee: str) -> None:
    tested = Joined(broker, tmp_path)
    tested.document["transport"]["guarantee"] = guarantee
    if guarantee == "at_least_once":  # ids are also restored from keys and headers
        tested.document["join"]["left"]["id"] = {"from": "record_key"}
        tested.document["join"]["right"]["id"] = {"header": "id"}
    tested.document["replicas"] = {"join": 2}
    tested.load()
    tested.send_while_killing(traffic(RECORDS, 2), random.Random(2), times=KILLS, processes=1)
    tested.drain()
    allowed = set() if guarantee == "exactly_once" else {"repeated"}
    assert tested.wrong().keys() <= allowed
