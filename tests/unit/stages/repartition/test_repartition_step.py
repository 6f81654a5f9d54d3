"""The stages left and right: where records go, which are late or invalid, and what is reported downstream."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from helpers.batches import idle_in, json_values_in, reasons_in, watermarks_in, written
from helpers.in_memory_batch import InMemoryBatch
from helpers.join_stage import NOW, JoinRun, record, step_rules
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.parsing.batch_slices import SLICE_BYTES
from skewless.stages.join.step import SILENT_MS
from skewless.stages.repartition.step import RepartitionRules, RepartitionStep
from skewless.wire.record import OutputRecord

PLAIN = JoinRules(apart_ms=5, left_disorder_ms=0, right_disorder_ms=0)


def left_stage(checkpoint: str | None = None, **changes: Any) -> RepartitionStep:
    """Return a step that has the partitions 0 and 1, and writes to 3 partitions."""
    defaults = {
        "side": Side.LEFT, "records": replace(step_rules(PLAIN).sides[Side.LEFT], keyed=False),
        "disorder_ms": 10, "partitions": 3, "max_drift_ms": 1_000, "idle_timeout_ms": None, "max_ahead_ms": 1_000,
        "drain": False,
    }  # fmt: skip
    step = RepartitionStep(RepartitionRules(**{**defaults, **changes}))
    for partition in (0, 1):
        step.assign(partition, checkpoint, ())
    return step


def feed(step: RepartitionStep, partition: int, *records: OutputRecord) -> list[OutputRecord]:
    return list(step.process(InMemoryBatch(partition, records), NOW))


def test_repartition_record_goes_to_the_partition_of_its_id_from_any_partition_and_with_any_key() -> None:
    step = left_stage()
    outputs = [feed(step, partition, record(name, 5)) for name in "abcdefgh" for partition in (0, 1)]
    places = [output.partition for (output,) in outputs]
    assert places[::2] == places[1::2]
    assert set(places) == {0, 1, 2}
    batch = InMemoryBatch(1, [OutputRecord("any", b'{"id": "a", "time": 5}', key=b"other")], [7])
    (output,) = step.process(batch, NOW)
    assert (output.topic, output.key, output.partition) == ("left-records", b"a", places[0])
    assert output.value == struct.pack(">Bqiq", 2, 5, 1, 7) + b'{"id": "a", "time": 5}'


def test_repartition_late_record_is_decided_by_its_own_partition() -> None:
    step = left_stage()
    outputs = [*feed(step, 0, record("a", 100), record("b", 89), record("c", 90)), *feed(step, 1, record("d", 1))]
    (late,) = json_values_in(written(outputs, "join-late"))
    assert (late["id"], late["watermark"], late["partition"], late["offset"]) == ("b", 90, 0, 1)
    assert [output.key for output in written(outputs, "left-records")] == [b"a", b"c", b"d"]
    assert [sample.value for sample in step.collect_metrics()] == [1, 0]


def test_repartition_restored_partition_has_the_same_late_records() -> None:
    step = left_stage()
    feed(step, 0, record("a", 100))
    restored = left_stage(step.checkpoint(0))
    assert [output.topic for output in feed(restored, 0, record("b", 89))] == ["join-late"]


def test_repartition_invalid_record_is_a_dead_letter_with_its_side() -> None:
    outputs = feed(left_stage(), 0, record("a", 5), OutputRecord("any", None), record("", 6), record("b", 7))
    reasons = [reason for _, reason in reasons_in(written(outputs, "dead-letters"))]
    assert reasons == ["left: empty record", "left: empty id"]
    assert len(written(outputs, "left-records")) == 2


def test_repartition_invalid_record_of_a_large_batch_is_a_dead_letter_with_its_offset() -> None:
    large = [record(f"{number}", 5, padding="x" * 250_000) for number in range(9)]
    outputs = feed(left_stage(), 0, *large, record("", 6))
    assert sum(len(each.value or b"") for each in large) > SLICE_BYTES
    assert reasons_in(written(outputs, "dead-letters")) == [(9, "left: empty id")]


def test_repartition_changed_watermarks_are_reported_to_all_partitions_before_a_commit() -> None:
    step = left_stage(drain=True)
    feed(step, 1, record("a", 100))
    reports = list(step.flush(NOW))
    assert [report.partition for report in reports] == [0, 1, 2]
    assert watermarks_in(reports) == [{1: 90}] * 3
    assert list(step.flush(NOW)) == []
    for partition in (0, 1):
        step.end_of_partition(partition, NOW)
    assert watermarks_in(list(step.flush(NOW))) == [{0: MAX_WATERMARK, 1: MAX_WATERMARK}] * 3
    assert step.finished(0)
    assert step.finished(1)


def test_repartition_idle_partition_is_reported_and_holds_no_other_one_back() -> None:
    step = left_stage(idle_timeout_ms=500)
    feed(step, 0, record("a", 10))
    feed(step, 1, record("b", 5_000))
    assert step.blocked == {1}
    step.end_of_partition(0, NOW + 500)
    assert idle_in(list(step.flush(NOW + 500))) == [{0}] * 3
    assert step.blocked == frozenset()


def test_repartition_partition_with_only_invalid_records_becomes_idle() -> None:
    step = left_stage(idle_timeout_ms=500)
    step.end_of_partition(0, NOW)
    feed(step, 0, OutputRecord("any", None))
    step.end_of_partition(0, NOW + 500)
    assert idle_in(list(step.flush(NOW + 500))) == [{0}] * 3


def test_repartition_partition_that_gets_invalid_records_all_the_time_becomes_idle() -> None:
    step = left_stage(idle_timeout_ms=500)
    for now in (NOW, NOW + 500):
        feed(step, 0, OutputRecord("any", None))
        step.up_to_date(0, now)
    assert idle_in(list(step.flush(NOW + 500))) == [{0}] * 3


def test_repartition_partition_that_was_idle_is_reported_as_active_after_a_restart() -> None:
    step = left_stage(idle_timeout_ms=500)
    feed(step, 0, record("a", 10))
    step.end_of_partition(0, NOW + 500)
    list(step.flush(NOW + 500))
    again = left_stage(step.checkpoint(0), idle_timeout_ms=500)
    again.end_of_partition(0, NOW + 900)
    reports = list(again.flush(NOW + 900))
    assert (watermarks_in(reports), idle_in(reports)) == ([{0: 0, 1: 0}] * 3, [set()] * 3)
    again.end_of_partition(0, NOW + 1_400)
    assert idle_in(list(again.flush(NOW + 1_400))) == [{0}] * 3


@pytest.mark.parametrize("is_restarted", [False, True], ids=["waits", "restarted"])
def test_repartition_idle_partition_without_records_is_reported_as_active(*, is_restarted: bool) -> None:
    step = left_stage(idle_timeout_ms=500)
    feed(step, 0, record("a", 10))
    for now in (NOW, NOW + 500):
        step.end_of_partition(1, now)
    assert idle_in(list(step.flush(NOW + 500))) == [{1}] * 3
    if is_restarted:
        checkpoint = step.checkpoint(1)
        step.revoke(1)
        step.assign(1, checkpoint, ())
    else:
        step.records_in_flight(1)  # such as its first one, for a schema
    reports = list(step.flush(NOW + 600))
    assert (watermarks_in(reports), idle_in(reports)) == ([{1: -10}] * 3, [set()] * 3)
    assert list(step.flush(NOW + 700)) == []


def test_join_step_silent_partition_of_a_repartitioned_topic_is_named() -> None:
    step = left_stage(partitions=1)
    run = JoinRun(step_rules(PLAIN, merged_partitions=dict.fromkeys(Side, 2)))
    run.append(Side.LEFT, *feed(step, 0, record("a", 50)), *feed(step, 1, record("b", 5)), *step.flush(NOW))
    run.append(Side.RIGHT, *feed(left_stage(), 0, record("c", 90)))
    run.flush(at_end=[Side.LEFT])
    run.now += SILENT_MS
    run.append(Side.LEFT, *feed(step, 0, record("d", 70)), *step.flush(run.now))
    run.flush(at_end=[Side.LEFT])
    (waiting,) = run.step.waiting
    assert waiting.startswith("1 right records wait for topic impressions, of which everything is read, in partition 1")


def test_join_step_foreign_record_in_a_repartitioned_topic_is_a_dead_letter() -> None:
    run = JoinRun(step_rules(PLAIN, merged_partitions=dict.fromkeys(Side, 1)))
    foreign = [OutputRecord("any", b"\x02", key=b"a"), OutputRecord("any", None), OutputRecord("any", b"\x02" * 30)]
    outputs = run.append(Side.LEFT, *feed(left_stage(), 0, record("a", 5)), *foreign)
    assert len(reasons_in(outputs)) == 2
    assert run.metrics()["skewless_join_held_records", "left"] == 1
