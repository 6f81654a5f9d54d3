"""The stages left, right and join together: silent partitions, new partitions, and a buffer that is full."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from helpers.in_memory_batch import InMemoryBatch
from helpers.join_stage import NOW, PARTITIONS, TOPICS, JoinRun, record, step_rules
from helpers.repartitioned_join import RepartitionedJoin
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.algorithms.watermark import WatermarkState
from skewless.stages.join.step import ASK_INTERVAL_MS, SILENT_MS, JoinStep
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

PLAIN = JoinRules(apart_ms=10, left_disorder_ms=0, right_disorder_ms=0)
LEFT, RIGHT = Side
TIMEOUT_MS = 1_000


def ids(run: JoinRun, topic: str) -> list[str]:
    return [row["id"] for row in run.texts(topic)]


def joined_during_a_silence(time: int) -> RepartitionedJoin:
    """Return a join with an idle right topic, and a left record b of this time."""
    stages = RepartitionedJoin(PLAIN, 1, idle_timeout_ms=TIMEOUT_MS)
    stages.write(RIGHT, 0, record("x", 1000))
    stages.write(LEFT, 0, record("a", 1000))
    stages.join.now += TIMEOUT_MS
    stages.write(RIGHT, 0)
    stages.write(LEFT, 0, record("b", time))
    stages.run()
    assert stages.join.step.idle(PARTITIONS[RIGHT])
    return stages


def test_repartitioned_join_silent_topic_follows_the_other_one_after_the_idle_timeout() -> None:
    stages = RepartitionedJoin(PLAIN, 1, idle_timeout_ms=TIMEOUT_MS)
    plain = JoinRun(step_rules(PLAIN, idle_timeout_ms=TIMEOUT_MS))
    for side, each in ((RIGHT, record("x", 5)), (LEFT, record("x", 3))):
        stages.write(side, 0, each)
        plain.append(side, each)
    for number in range(1, 6):
        plain.now = stages.join.now = plain.now + TIMEOUT_MS
        each = record(f"a{number}", 1000 * number)
        stages.write(LEFT, 0, each)
        stages.write(RIGHT, 0)
        stages.run()
        plain.append(LEFT, each)
        plain.commit(at_end=[RIGHT])
    assert ids(stages.join, "unmatched-left") == ids(plain, "unmatched-left") == ["a1", "a2", "a3", "a4"]
    assert stages.join.step.waiting == ()
    assert stages.join.step.idle(PARTITIONS[RIGHT])


def test_repartitioned_join_both_topics_silent_have_the_verdicts_of_the_higher_watermark() -> None:
    stages = RepartitionedJoin(PLAIN, 1, idle_timeout_ms=TIMEOUT_MS)
    stages.write(LEFT, 0, record("a", 100))
    stages.write(RIGHT, 0, record("b", 150), record("c", 200))
    stages.join.now += TIMEOUT_MS
    for side in Side:
        stages.write(side, 0)
    stages.run()
    assert (ids(stages.join, "unmatched-left"), ids(stages.join, "unmatched-right")) == (["a"], ["b"])


def test_repartitioned_join_silent_topic_of_which_a_partition_is_active_waits_for_it() -> None:
    stages = RepartitionedJoin(PLAIN, 2, idle_timeout_ms=TIMEOUT_MS)
    stages.write(RIGHT, 0, record("x", 5))
    stages.join.now += TIMEOUT_MS
    stages.write(RIGHT, 1, record("y", 5))
    for partition in range(2):
        stages.write(LEFT, partition, record(f"a{partition}", 1000))
    stages.run()
    stages.join.now += SILENT_MS
    stages.run()
    assert ids(stages.join, "unmatched-left") == []
    stages.join.step.up_to_date(PARTITIONS[RIGHT], stages.join.now)
    assert not stages.join.step.idle(PARTITIONS[RIGHT])
    (waiting,) = stages.join.step.waiting
    assert waiting.endswith("read, in partition 1: write to it, or wait for join.idle_timeout_s")


def test_repartitioned_join_records_after_a_silence_wait_again_before_their_report_is_read() -> None:
    stages = joined_during_a_silence(2000)
    stages.write(RIGHT, 0, record("b", 2000), record("c", 2001))
    stages.join.read(RIGHT, 1)
    stages.write(LEFT, 0, record("d", 3000))
    stages.join.read(LEFT, 10)
    stages.join.commit()
    stages.run()
    assert ids(stages.join, "joined") == ["b"]
    assert stages.join.texts("join-late") == []


def test_repartitioned_join_report_after_a_silence_without_a_record_holds_the_other_topic_back() -> None:
    """The first record after the silence is late, so the report is the only one that the join reads."""
    stages = joined_during_a_silence(1000)
    stages.write(RIGHT, 0, record("old", 500))
    stages.join.read(RIGHT, 1)
    stages.write(LEFT, 0, record("d", 3000))
    stages.join.read(LEFT, 10)
    stages.join.commit()
    stages.write(RIGHT, 0, record("b", 1001))
    stages.run()
    assert ids(stages.join, "joined") == ["b"]
    assert stages.join.texts("join-late") == []


def test_repartitioned_join_idle_partition_of_an_earlier_run_has_not_ended_a_bounded_one() -> None:
    stages = RepartitionedJoin(PLAIN, 1, idle_timeout_ms=TIMEOUT_MS)
    stages.write(RIGHT, 0, record("x", 1000))
    stages.write(LEFT, 0, record("a", 1000))
    stages.join.now += TIMEOUT_MS
    stages.write(RIGHT, 0)
    stages.run()
    bounded = step_rules(PLAIN, merged_partitions=dict.fromkeys(Side, 1), idle_timeout_ms=TIMEOUT_MS, drain=True)
    stages.join.rules = bounded
    stages.join.start()
    stages.write(LEFT, 0, record("b", 2000))
    stages.run()
    assert ids(stages.join, "unmatched-left") == []


@pytest.mark.parametrize("has_records", [False, True])
def test_repartitioned_join_unread_end_of_a_bounded_run_ends_no_later_run(*, has_records: bool) -> None:
    stages = RepartitionedJoin(PLAIN, 1, drain=True)
    for side in Side:
        stages.write(side, 0, *([record("x", 500)] if has_records or side is LEFT else []))
    stages.restart(drain=False)
    stages.write(LEFT, 0, record("a", 1000), ends=False)
    stages.run()
    stages.write(RIGHT, 0, record("a", 1001), ends=False)
    stages.run()
    assert [row["left"]["id"] for row in stages.join.texts("joined")] == (["x", "a"] if has_records else ["a"])
    assert "a" not in ids(stages.join, "unmatched-left")


@pytest.mark.parametrize("changes", [{"drain": True}, {"idle_timeout_ms": None}], ids=["bounded", "no timeout"])
def test_repartitioned_join_idle_partition_without_records_of_an_earlier_run_is_waited_for(
    changes: dict[str, Any],
) -> None:
    stages = RepartitionedJoin(PLAIN, 2, idle_timeout_ms=TIMEOUT_MS)
    for number in range(2):
        stages.write(LEFT, 0, record(f"a{number}", 1000 * number))
        stages.write(RIGHT, 0, record(f"a{number}", 1000 * number))
        stages.run()
        stages.join.now += TIMEOUT_MS
    stages.restart(**changes)
    stages.write(LEFT, 0, record("b", 9000), ends=False)
    for side in (RIGHT, LEFT):
        stages.write(side, 1, record("c", 2000), ends=False)
        stages.run()
    assert ids(stages.join, "join-late") == []
    assert [row["left"]["id"] for row in stages.join.texts("joined")] == ["a0", "a1", "c"]


def test_repartitioned_join_smaller_topic_that_gets_a_partition_goes_on_with_it_also_after_a_restart() -> None:
    stages = RepartitionedJoin(PLAIN, {LEFT: 3, RIGHT: 2})

    def write(number: int, partitions: int) -> None:
        for side, count in ((LEFT, 3), (RIGHT, partitions)):
            for partition in range(count):
                stages.write(side, partition, record(f"{side.value}-{number}-{partition}", 100 * number))
        stages.run()

    write(1, 2)
    write(2, 2)
    stages.add_partition(RIGHT)
    stages.write(RIGHT, 2, record("new", 150))
    write(3, 2)
    assert stages.join.step.watermark(PARTITIONS[RIGHT]) == 200  # the new partition is at 150
    write(4, 3)
    stages.join.crash()  # the rules still have the former number
    write(5, 3)
    assert stages.join.step.watermark(PARTITIONS[RIGHT]) == 500
    assert len(stages.join.texts("unmatched-left")) == 3 * 4
    assert not [output for output in stages.join.outputs if output.topic == "dead-letters"]


def test_repartitioned_join_report_of_more_partitions_than_the_join_has_is_a_dead_letter() -> None:
    stages = RepartitionedJoin(PLAIN, {LEFT: 2, RIGHT: 1})
    for _ in range(2):
        stages.add_partition(RIGHT)
    stages.write(RIGHT, 1, record("a", 5))
    stages.run()
    assert not [output for output in stages.join.outputs if output.topic == "dead-letters"]
    stages.write(RIGHT, 2, record("b", 5))
    stages.run()
    (letter,) = [output for output in stages.join.outputs if output.topic == "dead-letters"]
    assert "right: upstream partition 2 is unknown: there are 2" in str(letter.headers)


def test_repartitioned_join_record_that_is_late_after_a_silence_names_its_place_in_the_topic_of_the_user() -> None:
    stages = RepartitionedJoin(PLAIN, 2, idle_timeout_ms=TIMEOUT_MS)
    stages.write(LEFT, 1, record("first", 5))
    stages.join.now += TIMEOUT_MS
    for side, partition in ((LEFT, 0), (RIGHT, 0), (RIGHT, 1)):
        stages.write(side, partition, record(f"{side.value}-{partition}", 5000))
    stages.run()
    stages.write(LEFT, 1, record("late", 500))
    stages.run()
    (late,) = [output for output in stages.join.outputs if output.topic == "join-late"]
    (row,) = stages.join.texts("join-late")
    assert (late.partition, row["id"], row["partition"], row["offset"]) == (1, "late", 1, 1)


def full_with_an_empty_partition(idle_timeout_ms: int | None) -> RepartitionedJoin:
    """Return a join that cannot read on, while a partition of the left topic has no record."""
    stages = RepartitionedJoin(PLAIN, 2, buffer_records=100, max_drift_ms=60_000, idle_timeout_ms=idle_timeout_ms)
    for number in range(40):
        stages.join.now += 1000
        traffic(stages, number, left_partition=0)
    assert stages.join.step.blocked == set(PARTITIONS.values())
    return stages


def traffic(stages: RepartitionedJoin, number: int, *, left_partition: int) -> None:
    """Write the records of a second to both topics: every second right one has no partner."""
    times = [1000 * number + index for index in range(20)]
    stages.write(LEFT, left_partition, *(record(f"{time}", time) for time in times))
    stages.write(RIGHT, number % 2, *(record(f"{time}" if time % 2 else f"x{time}", time) for time in times))
    stages.run()


def test_repartitioned_join_full_buffer_names_the_partition_without_records_and_is_read_on_when_it_has_some() -> None:
    stages = full_with_an_empty_partition(None)
    assert "They wait for topic impressions partition 1. If no records come there, write some" in (
        stages.join.step.stalled or ""
    )
    before = stages.unread(LEFT)
    traffic(stages, 40, left_partition=0)
    assert stages.unread(LEFT) > before
    for number in range(41, 50):
        stages.join.now += 5_000
        traffic(stages, number, left_partition=number % 2)
    assert stages.join.step.stalled is None
    assert [stages.unread(side) for side in Side] == [0, 0]
    assert Counter(row["side"] for row in stages.join.texts("join-late")) == {}
    assert len(stages.join.texts("joined")) == 50 * 10


def test_repartitioned_join_full_buffer_is_read_on_after_the_clock_was_set_back() -> None:
    stages = full_with_an_empty_partition(None)
    stages.join.now -= 3_600_000
    for number in range(40, 50):
        stages.join.now += 5_000
        traffic(stages, number, left_partition=number % 2)
    assert stages.join.step.stalled is None
    assert [stages.unread(side) for side in Side] == [0, 0]


def test_repartitioned_join_full_buffer_is_read_on_when_the_partition_without_records_is_idle() -> None:
    stages = full_with_an_empty_partition(60_000)
    for number in range(40, 50):
        stages.join.now += 10_000
        traffic(stages, number, left_partition=0)
    assert stages.join.step.stalled is None
    assert [stages.unread(side) for side in Side] == [0, 0]
    assert len(stages.join.texts("joined")) == 50 * 10


def test_join_step_that_cannot_read_on_asks_once_for_each_side_and_releases_all_its_partitions() -> None:
    step = JoinStep(step_rules(PLAIN, merged_partitions=dict.fromkeys(Side, 2), buffer_records=10))
    partitions = [TopicPartition(TOPICS[side], number) for side in Side for number in range(3)]
    for partition in partitions:
        step.assign(partition, None, ())
    for first in (0, 20):
        for partition in partitions:
            offsets = range(first, first + 20)
            records = timed([record(f"{partition.topic}-{offset}", 10) for offset in offsets])
            list(step.process(InMemoryBatch(partition.partition, records, offsets, topic=partition.topic), NOW))
        list(step.flush(NOW))
    assert step.stalled
    answers = {side: {number: WatermarkState(5) for number in range(2)} for side in Side}
    step.first_states = lambda side: answers.pop(side, {})
    list(step.flush(NOW + ASK_INTERVAL_MS))
    assert answers == {}
    assert [step.watermark(partition) for partition in partitions] == [5] * len(partitions)


def timed(records: list[OutputRecord]) -> list[OutputRecord]:
    """Return records as a stage writes them again, without a report of their watermark."""
    stage = RepartitionedJoin(PLAIN, 1).stages[RIGHT]
    return list(stage.process(InMemoryBatch(0, records, range(len(records))), NOW))
