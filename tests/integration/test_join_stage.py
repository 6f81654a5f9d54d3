"""The join stage on a real broker: silent topics, a topic that gets more partitions, and settings that changed."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from helpers.join_oracle import Event
from helpers.joined import PARTITIONS, Joined
from helpers.kafka import START_MS, read
from helpers.stage_hosts import ended, hosted
from helpers.waiting import WAIT_S, until
from skewless.algorithms.join.window_join import Side
from skewless.config import topic_plan

pytestmark = pytest.mark.broker
SIDES = ("left", "right")
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
    "retention.ms": "-1",
}
"""Options of a topic that is compacted at once."""


@pytest.mark.parametrize("filled", [[], [Side.LEFT], [Side.RIGHT]], ids=["both empty", "right empty", "left empty"])
def test_join_bounded_run_with_topics_that_stay_empty_ends(broker: str, tmp_path: Path, filled: list[Side]) -> None:
    tested = Joined(broker, tmp_path)
    for side in filled:
        tested.send(side, [Event(f"{number}", START_MS + number) for number in range(20)])
    tested.flush()
    assert tested.drain().count("finished") == 1
    assert tested.wrong() == {}
    assert [len(list(tested.read(f"unmatched-{side.value}"))) for side in filled] == [20] * len(filled)


@pytest.mark.parametrize("side", Side)
def test_join_topic_that_gets_more_partitions_while_it_runs_ends_the_process(
    broker: str, tmp_path: Path, side: Side
) -> None:
    tested = Joined(broker, tmp_path)
    tested.document["kafka"]["options"] = {"topic.metadata.refresh.interval.ms": 300}
    tested.load()
    log = tmp_path / "join.log"
    with hosted(tested.file, "run", "join", log=log) as process:
        until(lambda: "assigned" in log.read_text())
        admin = AdminClient({"bootstrap.servers": broker})
        grown = NewPartitions(tested.topics[side], PARTITIONS + 1)
        admin.create_partitions([grown])[grown.topic].result()
        assert process.wait(WAIT_S) == 3
    *_, last = errors(log.read_text())
    assert f"topic {tested.topics[side]} has {PARTITIONS + 1} partitions" in last


def readiness(tested: Joined, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Run the join until its readiness page satisfies a condition, and return the page."""
    supervisor = tested.supervisor(drain=False)
    found: dict[str, Any] = {}

    def look() -> bool:
        page = f"http://127.0.0.1:{supervisor.processes['join-0'].metrics_port}/readyz"
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:
                found.update(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                found.update(json.load(error))
        except OSError:
            return False
        return holds(found)

    try:
        supervisor.start()
        until(look, each=lambda: supervisor.poll(time.monotonic()))
    finally:
        supervisor.stop()
    return found


@pytest.mark.thorough
def test_join_window_that_does_not_fit_is_not_ready_and_names_the_setting(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path, buffer_records=10)
    # The first batch of a partition gives it a watermark. The window does not fit if it has more.
    tested.document["transport"]["max_poll_records"] = 10
    tested.load()
    for side, first in ((Side.LEFT, 0), (Side.RIGHT, 100)):
        tested.send(side, [Event(f"{2 * number + first}", START_MS) for number in range(30)])
    tested.flush()
    found = readiness(tested, lambda page: any("join.buffer_records" in reason for reason in page["reasons"]))
    assert not found["ready"]
    assert found["reasons"][-1].startswith("the records of one window do not fit: ")
    tested.document["join"]["buffer_records"] = 100
    tested.load()
    tested.drain()
    assert tested.wrong() == {}


@pytest.mark.thorough
def test_repartitioned_join_whose_buffer_is_full_reads_on_when_the_empty_partition_has_a_record(
    broker: str, tmp_path: Path
) -> None:
    tested = Joined(broker, tmp_path, {Side.LEFT: 2, Side.RIGHT: 1}, repartition="always", buffer_records=10_000)
    # The watermarks of the right topic come after all of its records, which are 1,500 more than the buffer: all
    # partitions are blocked from 1,000 more on, whichever is read first.
    tested.document["transport"] |= {"commit_interval_s": 5, "max_poll_records": 100}
    tested.load()

    def send(side: Side, ids: range) -> None:
        tested.send(side, [Event(f"{number}", START_MS + 100 * number) for number in ids])
        tested.flush()

    send(Side.LEFT, range(0, 300, 2))
    send(Side.RIGHT, range(1, 23_000, 2))
    waiting = f"They wait for topic {tested.topics[Side.LEFT]} partition 1. "
    is_full: list[str] = []

    def reads_on(page: dict[str, Any]) -> bool:
        found = [reason for reason in page.get("reasons", ()) if waiting in reason]
        if found and not is_full:
            # The first report of partition 1 comes after records that are not read on.
            send(Side.LEFT, range(300, 600, 2))
            send(Side.LEFT, range(24_000, 24_002))
            is_full.extend(found)
        return bool(is_full) and not found and len(list(tested.read("unmatched-right"))) == 11_500

    readiness(tested, reads_on)
    assert list(tested.read("join-late")) == []
    tested.drain()
    assert tested.wrong_repartitioned() == {}


@pytest.mark.thorough
def test_join_silent_partition_is_named_by_the_readiness_page(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path)
    tested.send(Side.LEFT, [Event("1", START_MS), Event("3", START_MS)])
    tested.send(Side.RIGHT, [Event("0", START_MS + 60_000)])
    tested.flush()
    # The two partitions of a topic are read one after the other.
    found = readiness(tested, lambda page: len(page.get("waiting", ())) == 2)
    assert (found["ready"], found["reasons"]) == (True, [])
    # The right record of partition 0 waits, too: everything in both topics is read.
    assert sorted(line.partition(": ")[0] for line in found["waiting"]) == [
        f"1 right records wait for topic {tested.topics[Side.LEFT]}, of which everything is read, in partition 0",
        f"2 left records wait for topic {tested.topics[Side.RIGHT]}, of which everything is read, in partition 1",
    ]


def errors(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("error:")]


def refusal(tested: Joined, stage: str, code: int = 2) -> str:
    """Run a stage, which must end with this code, and return its errors."""
    returncode, output = ended(tested.file, "run", stage)
    assert returncode == code, output
    return "\n".join(errors(output))


@pytest.mark.thorough
def test_join_held_records_that_were_deleted_are_named_by_topic_partition_and_offsets(
    broker: str, tmp_path: Path
) -> None:
    tested = Joined(broker, tmp_path)
    tested.hold([Event(f"{number}", START_MS) for number in range(10)])
    kept = TopicPartition(tested.topics[Side.LEFT], 1, 3)
    admin = AdminClient({"bootstrap.servers": broker})  # it must outlive its futures
    admin.delete_records([kept])[kept].result()
    error = refusal(tested, "join", code=3)
    assert f"records of topic {kept.topic} that wait for a partner were deleted, in partition 1" in error
    assert "they begin at offset 0, log start offset is 3" in error
    assert "give the pipeline another name" in error


@pytest.mark.thorough
def test_join_held_records_that_were_compacted_are_named_by_topic_partition_and_offset(
    broker: str, tmp_path: Path
) -> None:
    tested = Joined(broker, tmp_path)
    tested.hold([Event(f"{number}", START_MS) for number in range(10)])
    topic, partition = tested.topics[Side.LEFT], 1
    set_options(broker, topic, COMPACTED)

    def compacted() -> bool:
        # New records with the keys 1 and 3 roll the segment, so that the segment before can be compacted.
        tested.send(Side.LEFT, [Event("1", START_MS), Event("3", START_MS)])
        tested.flush()
        offsets = [record.offset for record in read(broker, topic) if record.partition == partition]
        return offsets[:2] == [2, 3]

    until(compacted)
    set_options(broker, topic, {"cleanup.policy": "delete"})
    error = refusal(tested, "join", code=3)
    assert f"topic {topic} partition {partition} lacks 2 of the records that wait for a partner" in error
    assert "the first at offset 0: they were compacted. Disable compaction" in error


def set_options(broker: str, topic: str, options: Mapping[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in options.items()]
    admin = AdminClient({"bootstrap.servers": broker})  # it must outlive its futures
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()


@pytest.mark.thorough
def test_join_changed_setting_over_held_records_is_refused_by_name(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path)
    tested.hold([Event(f"{number}", START_MS) for number in range(10)])
    before = tested.document["join"]
    swapped = {side: before[side] | {"topic": before[other]["topic"]} for side, other in (SIDES, SIDES[::-1])}
    for change, problem in (
        ({"repartition": "always"}, "join.repartition: is always, was never"),
        ({"apart_s": 1.5}, "join.apart_s: is 1.5, was 2.0"),
        ({"right": before["right"] | {"time": {}}}, "join.right: format, id, time or limits"),
        (swapped, f"join.left.topic: is {tested.topics[Side.RIGHT]}, was {tested.topics[Side.LEFT]}"),
    ):
        tested.document["join"] = before | change
        tested.load()
        topic_plan.apply(tested.settings)
        assert problem in refusal(tested, "join"), change
    tested.document["join"] = before
    tested.load()
    tested.drain()
    assert tested.wrong() == {}
    assert len(list(tested.read("unmatched-left"))) == 10


@pytest.mark.thorough
def test_repartitioned_join_changed_setting_over_held_records_is_refused_by_name(broker: str, tmp_path: Path) -> None:
    tested = Joined(broker, tmp_path, repartition="always")
    tested.hold([Event(f"{number}", START_MS) for number in range(10)])
    for setting, value, stages, problem in (
        ("repartition", "never", ["join"], "join.repartition: is never, was always"),
        ("apart_s", 1.5, ["left", "right", "join"], "join.apart_s: is 1.5, was 2.0"),
    ):
        before = tested.document["join"]
        tested.document["join"] = before | {setting: value}
        tested.load()
        for stage in stages:
            assert problem in refusal(tested, stage), stage
        tested.document["join"] = before
