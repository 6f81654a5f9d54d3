"""The step of the join over in-memory logs: outcomes of records, restarts, silent partitions, bounded runs."""

from __future__ import annotations

from collections import Counter
from time import process_time
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.batches import json_values_in, reasons_in, written
from helpers.in_memory_batch import InMemoryBatch
from helpers.join_oracle import Answer, Event, answer
from helpers.join_stage import NOW, PARTITIONS, TOPICS, JoinRun, record, step_rules
from skewless.algorithms.join.held_records import BLOCK_OFFSETS
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.algorithms.record_size import DOCUMENT_BYTES
from skewless.engine.step import HistogramSample
from skewless.errors import BrokerError
from skewless.parsing.batch_slices import SLICE_BYTES
from skewless.parsing.formats import base
from skewless.parsing.join_records import read_records, side_rules
from skewless.parsing.join_side_settings import JoinSideSettings
from skewless.stages.join.step import RECORD_BYTES, SILENT_MS, JoinStep
from skewless.wire.join_changelog import held_blocks
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

PLAIN = JoinRules(apart_ms=5, left_disorder_ms=0, right_disorder_ms=0)
LEFT, RIGHT = Side

logs = st.lists(st.builds(Event, st.sampled_from("abc"), st.integers(0, 20)), max_size=12)
acts = st.lists(
    st.sampled_from(["crash", "commit", "publish"]) | st.tuples(st.sampled_from(Side), st.integers(1, 5)),
    max_size=20,
)


def records(log: list[Event]) -> list[OutputRecord]:
    return [record(event.id, event.time, offset=offset) for offset, event in enumerate(log)]


def run_over(left: list[Event], right: list[Event], rules: JoinRules, acts: list[object], *, exact: bool) -> JoinRun:
    run = JoinRun(step_rules(rules), {LEFT: records(left), RIGHT: records(right)})
    for act in acts:
        if isinstance(act, tuple):
            run.read(*act)
        elif act == "commit":
            run.commit()
        elif act == "publish" and not exact:
            run.flush()
            run.publish()
            run.crash()
        elif act == "crash":
            run.crash()
    for side in Side:
        run.read(side, 100)
    run.commit()
    assert_no_empty_block_stays(run)
    return run


def assert_no_empty_block_stays(run: JoinRun) -> None:
    """Assert that two commits after a restart have removed all blocks without held records."""
    run.crash()
    for _ in range(2):
        run.commit()
    assert all(bitmap for side in Side for bitmap in held_blocks(run.changelog.items(), side.value, 10**6).values())


def outcome(run: JoinRun) -> Answer:
    return Answer(
        {(pair["left"]["offset"], pair["right"]["offset"]) for pair in run.texts("joined")},
        {unmatched["record"]["offset"] for unmatched in run.texts("unmatched-left")},
        {unmatched["record"]["offset"] for unmatched in run.texts("unmatched-right")},
        {late["offset"] for late in run.texts("join-late") if late["side"] == "left"},
        {late["offset"] for late in run.texts("join-late") if late["side"] == "right"},
    )


@given(left=logs, right=logs, disorder=st.tuples(st.integers(0, 8), st.integers(0, 8)), acts=acts)
def test_join_step_any_reading_commits_and_crashes_emits_the_definition_once(
    left: list[Event], right: list[Event], disorder: tuple[int, int], acts: list[object]
) -> None:
    rules = JoinRules(5, *disorder)
    run = run_over(left, right, rules, acts, exact=True)
    assert outcome(run) == answer(left, right, rules)
    assert max(Counter(output.value for output in run.outputs).values(), default=1) == 1


@given(left=logs, right=logs, disorder=st.tuples(st.integers(0, 8), st.integers(0, 8)), acts=acts)
@example(  # the changes that belong to no commit are in a block that an earlier process has committed
    left=[Event("a", 10), Event("b", 11)],
    right=[Event("a", 12)],
    disorder=(0, 0),
    acts=[(LEFT, 1), "commit", "crash", (LEFT, 1), "publish"],
)
def test_join_step_at_least_once_repeats_outputs_and_never_emits_a_false_one(
    left: list[Event], right: list[Event], disorder: tuple[int, int], acts: list[object]
) -> None:
    rules = JoinRules(5, *disorder)
    assert outcome(run_over(left, right, rules, acts, exact=False)) == answer(left, right, rules)


def test_join_step_at_least_once_changes_without_a_commit_stay_uncommitted_after_later_ones() -> None:
    """The change is in one block of the changelog. The process that follows changes only another block."""
    run = JoinRun(step_rules(JoinRules(10_000, 0, 0)))
    for _ in range(BLOCK_OFFSETS - 1):
        run.logs[LEFT].append(OutputRecord("any", None, key=b"x"))
    run.read(LEFT, BLOCK_OFFSETS - 1)
    run.append(LEFT, record("a", 1_000))  # the last offset of the first block
    run.commit()
    run.logs[LEFT].append(record("b", 1_001))
    run.logs[RIGHT].append(record("a", 1_500))
    run.read(RIGHT, 1)
    run.flush()
    run.publish()  # the pair, and the first block without its record
    run.crash()
    run.read(LEFT, 1)
    run.commit()  # only the second block has changed
    run.crash()
    run.read(RIGHT, 1)
    run.commit()
    run.append(LEFT, record("z", 100_000))
    run.append(RIGHT, record("z", 100_000))
    run.commit()
    assert [entry["id"] for entry in run.texts("unmatched-left")] == ["b"]
    assert run.texts("unmatched-right") == []
    assert {entry["left"]["id"] for entry in run.texts("joined")} == {"a", "z"}


def test_join_step_pair_is_emitted_with_the_original_records_as_soon_as_both_are_read() -> None:
    run = JoinRun(step_rules(PLAIN))
    assert run.append(LEFT, record("a", 10, item="x")) == []
    (output,) = run.append(RIGHT, record("a", 12))
    assert msgspec.json.decode(output.value or b"") == {
        "id": "a", "left": {"id": "a", "time": 10, "item": "x"}, "right": {"id": "a", "time": 12}, "left_time": 10,
        "right_time": 12,
    }  # fmt: skip
    assert (output.topic, output.key, output.partition, output.timestamp) == ("joined", b"a", 0, 10)


def test_join_step_right_watermark_beyond_the_window_emits_the_left_record_as_unmatched() -> None:
    run = JoinRun(step_rules(PLAIN))
    run.append(LEFT, record("a", 10))
    assert run.append(RIGHT, record("b", 15)) == []
    (output,) = run.append(RIGHT, record("c", 16))
    assert (output.topic, json_values_in([output])[0]["time"]) == ("unmatched-left", 10)


def test_join_step_pairs_are_counted_by_the_time_between_their_records() -> None:
    run = JoinRun(step_rules(JoinRules(apart_ms=200_000, left_disorder_ms=0, right_disorder_ms=0)))
    run.append(LEFT, record("a", 0), record("b", 10), record("c", 20))
    run.append(RIGHT, record("a", 1), record("b", 1_010), record("c", 100_020))
    (sample,) = (sample for sample in run.step.collect_metrics() if isinstance(sample, HistogramSample))
    counts = dict(sample.histogram.cumulative())
    assert [counts[bound] for bound in (0.001, 0.5, 1.0, 60.0, 600.0)] == [1, 1, 2, 2, 3]
    assert sample.histogram.sum == pytest.approx(101.001)


def test_join_step_inner_join_counts_unmatched_left_records_only() -> None:
    run = JoinRun(step_rules(PLAIN, emit_unmatched_left=False))
    run.append(LEFT, record("a", 10))
    assert run.append(RIGHT, record("c", 16)) == []
    samples = run.metrics()
    assert samples["skewless_join_unmatched_total", "left"] == 1


def test_join_step_second_right_record_of_a_matched_left_one_is_unmatched() -> None:
    run = JoinRun(step_rules(PLAIN))
    run.append(LEFT, record("a", 10))
    assert len(run.append(RIGHT, record("a", 10), record("a", 11))) == 1
    (output,) = run.append(LEFT, record("b", 12))
    assert (output.topic, json_values_in([output])[0]["time"]) == ("unmatched-right", 11)


def test_join_step_late_record_is_emitted_with_watermark_and_takes_no_part() -> None:
    run = JoinRun(step_rules(PLAIN))
    (output,) = run.append(LEFT, record("a", 10), record("b", 9))
    assert output.topic == "join-late"
    assert json_values_in([output]) == [
        {"id": "b", "side": "left", "record": {"id": "b", "time": 9}, "time": 9, "watermark": 10, "partition": 0,
         "offset": 1}
    ]  # fmt: skip
    assert run.append(RIGHT, record("b", 10)) == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (OutputRecord("any", None, key=b"a"), "empty record"),
        (OutputRecord("any", b'{"time": 1}', key=b"a"), "id"),
        (record("", 1), "empty id"),
        (OutputRecord("any", b'{"id": {"a": 1}, "time": 1}', key=b"a"), "id"),
        (OutputRecord("any", b'{"id": "a"}', key=b"a"), "time"),
        (OutputRecord("any", b'{"id": "a", "time": "soon"}', key=b"a"), "time"),
        (record("a", -1), "time before time.earliest"),
        (record("a", 10**13 + 1), "time after time.latest"),
        (record("a", NOW + 1001), "time too far ahead of the clock"),
        (OutputRecord("any", b'{"id": "a", "time": 1}', key=b"b"), "the record key is not the id"),
        (OutputRecord("any", b'{"id": "a", "time": 1}'), "the record key is not the id"),
        (OutputRecord("any", b'{"id": "a"', key=b"a"), ""),
    ],
)
def test_join_step_invalid_record_is_a_dead_letter_with_its_side_and_the_others_continue(
    bad: OutputRecord, reason: str
) -> None:
    run = JoinRun(step_rules(PLAIN))
    outputs = run.append(RIGHT, record("a", 5), bad, record("b", 7))
    ((offset, found),) = reasons_in(written(outputs, "dead-letters"))
    assert offset == 1
    assert found.startswith("right: ")
    assert reason in found
    assert run.step.watermark(PARTITIONS[RIGHT]) == 7
    assert len(written(run.append(LEFT, record("a", 5), record("b", 7)), "joined")) == 2


def test_join_step_invalid_record_of_a_large_batch_is_a_dead_letter_with_its_offset() -> None:
    run = JoinRun(step_rules(PLAIN))
    large = [record(f"{number}", 1, padding="x" * 250_000) for number in range(9)]
    outputs = run.append(LEFT, *large, record("", 1))
    assert sum(len(each.value or b"") for each in large) > SLICE_BYTES
    ((offset, _),) = reasons_in(written(outputs, "dead-letters"))
    assert offset == 9


ELSEWHERE = {LEFT: {"from": "record_key"}, RIGHT: {"header": "id"}}


def test_join_step_ids_in_record_key_and_header_are_paired() -> None:
    run = JoinRun(step_rules(PLAIN, ELSEWHERE))
    run.append(LEFT, OutputRecord("any", b'{"time": 1, "n": 1}', key=b"a"))
    outputs = run.append(RIGHT, OutputRecord("any", b'{"time": 2, "n": 2}', key=b"a", headers=(("id", b"a"),)))
    assert [(pair["id"], pair["left"]["n"], pair["right"]["n"]) for pair in json_values_in(outputs)] == [("a", 1, 2)]


@pytest.mark.parametrize(
    ("side", "bad", "reason"),
    [
        (LEFT, OutputRecord("any", b'{"time": 1}'), "left: record key is missing"),
        (LEFT, OutputRecord("any", b'{"time": 1}', key=b"\xff"), "left: record key is not UTF-8"),
        (LEFT, OutputRecord("any", None, key=b"a"), "left: empty record"),
        (RIGHT, OutputRecord("any", b'{"time": 1}', key=b"a"), "right: id header id is missing"),
        (RIGHT, OutputRecord("any", b'{"time": 1}', key=b"a", headers=(("id", b"b"),)), "right: the record key is not"),
    ],
)
def test_join_step_record_without_its_id_in_key_or_header_is_a_dead_letter(
    side: Side, bad: OutputRecord, reason: str
) -> None:
    run = JoinRun(step_rules(PLAIN, ELSEWHERE))
    ((_, found),) = reasons_in(run.append(side, bad))
    assert found.startswith(reason)


@pytest.mark.parametrize("value", [None, b"", b"{", b'{"a": nul}', b"\xff"])
def test_join_step_value_that_results_cannot_contain_is_refused_even_if_no_field_of_it_is_read(
    value: bytes | None,
) -> None:
    settings = JoinSideSettings.model_validate({"topic": "t", "id": {"from": "record_key"}})
    batch = InMemoryBatch(0, [OutputRecord("any", value, key=b"a", timestamp=1)], range(1))
    records, invalid = read_records(side_rules(settings), batch, np.arange(1), NOW)
    assert (len(records.ids), list(invalid)) == (0, [0])


@pytest.mark.parametrize(
    ("format_name", "value"),
    [("json", b'{"k":"%b"}' % (b"x" * (DOCUMENT_BYTES - 7))), ("text", b"\1" * (DOCUMENT_BYTES // 6))],
)
def test_join_step_record_too_long_for_a_pair_as_json_is_refused_alone(format_name: str, value: bytes) -> None:
    limits = {"record_bytes": 2 * DOCUMENT_BYTES}
    settings = JoinSideSettings.model_validate(
        {"topic": "t", "id": {"from": "record_key"}, "format": format_name, "limits": limits}
    )
    values = [b"{}", value, value.replace(value[9:10], b"", 1)]
    log = [OutputRecord("any", each, key=b"a", timestamp=1) for each in values]
    found, invalid = read_records(side_rules(settings), InMemoryBatch(0, log, range(3)), np.arange(3), NOW)
    assert found.offsets.tolist() == [0, 2]
    assert invalid == {1: f"longer than {DOCUMENT_BYTES} bytes as JSON"}


def test_format_text_that_is_short_enough_in_any_case_is_not_encoded_to_know_its_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = JoinSideSettings.model_validate({"topic": "t", "id": {"from": "record_key"}, "format": "text"})
    log = [OutputRecord("any", b"\1" * (DOCUMENT_BYTES // 6 - 1), key=b"a", timestamp=1)]
    rules, records = side_rules(settings), InMemoryBatch(0, log, range(1))
    monkeypatch.delattr(base, "msgspec")  # what encodes a text
    assert rules.parser.documents(records, [0]) == ([log[0].value], {})


def test_join_step_time_a_day_ahead_and_back_makes_the_records_between_late() -> None:
    day = 86_400_000
    run = JoinRun(step_rules(PLAIN))
    run.append(LEFT, record("a", 10))
    outputs = run.append(RIGHT, record("x", 10 + day), record("a", 11))
    assert [output.topic for output in outputs] == ["join-late", "unmatched-left"]


@pytest.mark.parametrize("passed", [10**6, -(10**6)], ids=["", "clock set back"])
def test_join_step_silent_side_decides_nothing_and_is_visible(passed: int) -> None:
    run = JoinRun(step_rules(PLAIN))
    run.append(LEFT, *(record(f"{time}", time) for time in range(100)))
    assert written(run.flush(at_end=[RIGHT]), "unmatched-left") == []
    assert run.metrics()["skewless_join_silent_partitions", "right"] == 0
    run.now += passed
    assert written(run.flush(at_end=[RIGHT]), "unmatched-left") == []
    samples = run.metrics()
    assert [samples["skewless_join_silent_partitions", side.value] for side in Side] == [0, 1]
    assert samples["skewless_join_held_records", "left"] == 100
    (waiting,) = run.step.waiting
    assert waiting.startswith("100 left records wait for topic clicks, of which everything is read, in partition 0: ")
    run.append(RIGHT, record("x", 1_000))
    run.flush(at_end=[RIGHT])
    assert run.step.waiting == ()


def test_join_step_that_keeps_up_has_no_silent_partitions_while_records_wait() -> None:
    run = JoinRun(step_rules(PLAIN))
    run.flush(at_end=Side)
    for time in range(0, 2 * SILENT_MS, SILENT_MS // 2):
        run.now = NOW + time
        for side in Side:
            run.append(side, record(f"{side}{time}", time))
        run.flush(at_end=Side)
        samples = run.metrics()
        assert [samples["skewless_join_held_records", side.value] for side in Side] == [1, 1]
        assert [samples["skewless_join_silent_partitions", side.value] for side in Side] == [0, 0]
    assert run.step.waiting == ()


def test_join_step_idle_side_follows_the_other_one_and_older_records_are_late_after_a_restart() -> None:
    run = JoinRun(step_rules(PLAIN, idle_timeout_ms=1000))
    run.append(LEFT, record("a", 10), record("b", 20))
    run.commit(at_end=[RIGHT])
    assert run.texts("unmatched-left") == []
    run.now += 1000
    run.commit(at_end=[RIGHT])
    assert [unmatched["id"] for unmatched in run.texts("unmatched-left")] == ["a"]
    run.now += SILENT_MS
    run.commit(at_end=[RIGHT])
    assert run.step.waiting == ()  # b waits, but not for the idle side
    run.crash()
    outputs = run.append(RIGHT, record("a", 12), record("b", 21))
    assert [output.topic for output in outputs] == ["join-late", "joined"]


@pytest.mark.parametrize("order", [[[LEFT], [RIGHT]], [[RIGHT], [LEFT]], [Side]], ids=["left", "right", "both"])
def test_join_step_both_sides_idle_in_any_order_have_the_same_verdicts(order: list[list[Side]]) -> None:
    run = JoinRun(step_rules(PLAIN, idle_timeout_ms=1000))
    run.append(LEFT, record("a", 100))
    run.append(RIGHT, record("b", 150), record("c", 200))
    run.now += 1000
    for ends in order:
        run.commit(at_end=ends)
    assert [unmatched["id"] for unmatched in run.texts("unmatched-left")] == ["a"]
    assert [unmatched["id"] for unmatched in run.texts("unmatched-right")] == ["b"]
    outputs = run.append(LEFT, record("b", 150), record("c", 200))
    assert [output.topic for output in outputs] == ["join-late", "joined"]


def test_join_step_partition_with_only_invalid_records_becomes_idle() -> None:
    run = JoinRun(step_rules(PLAIN, idle_timeout_ms=1000))
    run.commit(at_end=Side)
    run.append(LEFT, record("a", 100), record("b", 200))
    run.now += 999
    run.append(RIGHT, OutputRecord("any", None))
    run.commit(at_end=Side)
    assert run.texts("unmatched-left") == []
    run.now += 1
    run.append(LEFT, record("c", 200))
    run.commit(at_end=Side)
    assert [unmatched["id"] for unmatched in run.texts("unmatched-left")] == ["a"]


def test_join_step_partition_that_gets_invalid_records_all_the_time_becomes_idle() -> None:
    run = JoinRun(step_rules(PLAIN, idle_timeout_ms=1000))
    run.append(LEFT, record("a", 100), record("b", 200))
    for _ in range(2):
        run.append(RIGHT, OutputRecord("any", None))
        run.step.up_to_date(PARTITIONS[RIGHT], run.now)
        run.commit()
        run.now += 1000
    assert [unmatched["id"] for unmatched in run.texts("unmatched-left")] == ["a"]


def test_join_step_idle_partition_whose_records_wait_for_a_schema_holds_the_other_one_back() -> None:
    run = JoinRun(step_rules(PLAIN, idle_timeout_ms=1000))
    run.append(RIGHT, record("x", 5))
    run.commit(at_end=Side)
    run.now += 1000
    run.commit(at_end=Side)
    run.step.records_in_flight(PARTITIONS[RIGHT])
    run.append(LEFT, record("a", 100), record("b", 200))
    run.commit()
    assert run.texts("unmatched-left") == []
    assert [output.topic for output in run.append(RIGHT, record("a", 105))] == ["joined"]


def test_join_step_bounded_run_ends_with_both_sides() -> None:
    run = JoinRun(step_rules(PLAIN, drain=True))
    run.append(LEFT, record("a", 10))
    run.append(RIGHT, record("b", 11))
    run.commit(at_end=[LEFT])
    assert not run.step.finished(PARTITIONS[LEFT])
    run.step.end_of_partition(PARTITIONS[RIGHT], run.now)
    assert not run.step.finished(PARTITIONS[LEFT])  # both records are held until the flush
    run.commit(at_end=[LEFT, RIGHT])
    assert [run.step.finished(partition) for partition in PARTITIONS.values()] == [True, True]
    assert [len(run.texts(topic)) for topic in ("unmatched-left", "unmatched-right", "joined")] == [1, 1, 0]


def test_join_step_bounded_run_reads_a_topic_on_whose_times_are_far_behind_the_end_of_the_other_one() -> None:
    run = JoinRun(step_rules(PLAIN, drain=True, max_drift_ms=100))
    run.append(LEFT, record("a", 10))
    for time in (10, 500, 1_000):
        run.append(RIGHT, record(f"{time}", time))
        run.commit(at_end=[LEFT])
        assert run.step.blocked == frozenset()


def test_join_step_partition_without_its_opposite_is_refused() -> None:
    step = JoinStep(step_rules(PLAIN))
    step.assign(PARTITIONS[LEFT], None, ())
    with pytest.raises(BrokerError, match="topic clicks partition 0 is not"):
        list(step.flush(NOW))


def test_join_step_number_of_which_everything_is_read_holds_no_other_one_back() -> None:
    """Both of its sides are silent, so nothing of the others depends on it."""
    step = JoinStep(step_rules(PLAIN, max_drift_ms=60_000))
    partitions = {(side, number): TopicPartition(TOPICS[side], number) for side in Side for number in (0, 1)}
    for partition in partitions.values():
        step.assign(partition, None, ())
    read = Counter[Side]()
    for side in Side:
        list(step.process(InMemoryBatch(0, [record("old", 0)], [0], topic=TOPICS[side]), NOW))
    for second in range(200):
        for side in Side:
            if partitions[side, 1] not in step.blocked:
                records = [record(f"{second}", 1_000 * read[side])]
                list(step.process(InMemoryBatch(1, records, [read[side]], topic=TOPICS[side]), NOW))
                read[side] += 1
            step.end_of_partition(partitions[side, 0], NOW + second)
        list(step.flush(NOW + second))
    assert read == {LEFT: 200, RIGHT: 200}
    step.records_in_flight(partitions[RIGHT, 0])
    list(step.flush(NOW))
    assert step.blocked == {partitions[side, 1] for side in Side}


TEN_RECORDS = [("buffer_records", 10), ("buffer_bytes", 10 * (RECORD_BYTES + 20))]
"""Settings with which ten records fill the buffer."""


@pytest.mark.parametrize(("setting", "limit"), TEN_RECORDS)
def test_join_step_full_buffer_blocks_all_but_the_slowest_partition(setting: str, limit: Any) -> None:
    run = JoinRun(step_rules(PLAIN, **{setting: limit}))
    assert run.metrics()["skewless_join_buffer_limit_records",] >= 10
    run.append(RIGHT, record("x", 0))
    run.append(LEFT, *(record(f"{time}", time) for time in range(12)))
    assert run.step.blocked == {PARTITIONS[LEFT]}
    samples = run.metrics()
    assert [samples["skewless_join_paused_partitions", side.value] for side in Side] == [1, 0]
    assert samples["skewless_join_buffer_limit_records",] == 10
    run.append(RIGHT, record("y", 50))
    assert run.step.blocked == frozenset()
    assert run.step.stalled is None


def test_join_step_that_is_assigned_more_held_records_than_before_reads_on() -> None:
    held = [JoinRun(step_rules(PLAIN, buffer_records=10)) for _ in range(2)]
    for run, records in zip(held, (12, 15), strict=True):
        run.append(RIGHT, record("x", 0))
        run.append(LEFT, *(record(f"{time}", time) for time in range(records)))
        run.commit()
        assert run.step.blocked == {PARTITIONS[LEFT]}
    first, second = held
    for partition in PARTITIONS.values():
        first.step.revoke(partition)
    second.start(first.step)
    second.commit()
    assert second.step.blocked == {PARTITIONS[LEFT]}


@pytest.mark.parametrize(("setting", "limit"), TEN_RECORDS)
def test_join_step_window_that_does_not_fit_stops_with_the_settings(setting: str, limit: Any) -> None:
    run = JoinRun(step_rules(PLAIN, **{setting: limit}))
    run.append(RIGHT, *(record(f"r{number}", 0) for number in range(10)))
    run.append(RIGHT, record("r10", 0), record("r11", 0))
    run.append(LEFT, record("l", 0))
    assert (run.step.stalled or "") == ""
    run.append(LEFT, *(record(f"l{number}", 0) for number in range(4)))
    assert run.step.blocked == set(PARTITIONS.values())
    assert f"of {limit} of join.{setting} are in use. Set join.{setting} to at least " in (run.step.stalled or "")
    run.flush(at_end=Side)
    run.now += SILENT_MS
    run.flush(at_end=Side)
    assert run.step.waiting
    run.step.revoke(PARTITIONS[RIGHT])
    samples = run.metrics()
    assert (run.step.blocked, run.step.stalled, run.step.waiting) == (frozenset(), None, ())
    assert samples["skewless_join_silent_partitions", "left"] == 0


def test_join_step_partition_far_ahead_waits_for_the_slowest() -> None:
    run = JoinRun(step_rules(PLAIN, max_drift_ms=100))
    run.append(LEFT, record("a", 500))
    assert run.step.blocked == frozenset()
    run.append(RIGHT, record("b", 10))
    assert run.step.blocked == {PARTITIONS[LEFT]}
    run.append(RIGHT, record("c", 400))
    assert run.step.blocked == frozenset()


def test_join_step_one_id_many_times_is_paired_in_the_order_of_offsets() -> None:
    run = JoinRun(step_rules(PLAIN))
    run.append(LEFT, *(record("a", 10, offset=offset) for offset in range(20_000)))
    outputs = run.append(RIGHT, *(record("a", 10, offset=offset) for offset in range(20_000)))
    pairs = json_values_in(written(outputs, "joined"))
    assert [(pair["left"]["offset"], pair["right"]["offset"]) for pair in pairs] == [(n, n) for n in range(20_000)]


def test_join_step_one_id_on_one_side_takes_linear_time_and_its_memory_is_free_again() -> None:
    def run_over(count: int) -> float:
        run = JoinRun(step_rules(JoinRules(apart_ms=5, left_disorder_ms=count, right_disorder_ms=0)))
        left = [record("a", time) for time in range(count, 0, -1)]  # the oldest record has the highest offset
        started = process_time()
        run.append(LEFT, *left)
        unmatched = [output for step in range(10) for output in run.append(RIGHT, record("b", (step + 1) * count))]
        assert len(written(unmatched, "unmatched-left")) == count
        assert run.metrics()["skewless_join_held_bytes", "left"] == 0
        return process_time() - started

    short = min(run_over(2_000) for _ in range(3))
    assert run_over(20_000) < 40 * short  # 10 times the records: a quadratic step takes 100 times as long


def test_join_step_one_id_partner_behind_many_held_records_is_found_fast() -> None:
    """The right disorder keeps all left records, and the only partners in reach are the last ones."""

    def run_over(held: int) -> float:
        run = JoinRun(step_rules(JoinRules(apart_ms=500, left_disorder_ms=0, right_disorder_ms=held)))
        run.append(LEFT, *(record("a", time) for time in range(held)))
        right = [record("a", held)] * 500
        started = process_time()
        assert len(written(run.append(RIGHT, *right), "joined")) == 500
        return process_time() - started

    assert min(run_over(40_000) for _ in range(3)) < 5 * min(run_over(2_000) for _ in range(3))


def test_join_step_id_and_record_above_the_limits_are_dead_letters_with_the_limit() -> None:
    run = JoinRun(step_rules(PLAIN))
    outputs = run.append(LEFT, record("x" * 65_536, 1), record("a", 2, padding="x" * 1_000_000), record("b", 3))
    reasons = [reason for _, reason in reasons_in(written(outputs, "dead-letters"))]
    assert len(reasons) == 2
    assert "1024" in reasons[0].replace(",", "")
    assert "262144" in reasons[1].replace(",", "")
    samples = run.metrics()
    assert samples["skewless_join_held_records", "left"] == 1
    assert samples["skewless_join_held_bytes", "left"] == len(run.logs[LEFT][2].value or b"")


def test_join_step_bounded_run_over_empty_topics_ends() -> None:
    run = JoinRun(step_rules(PLAIN, drain=True))
    run.commit(at_end=[LEFT, RIGHT])
    assert [run.step.finished(partition) for partition in PARTITIONS.values()] == [True, True]
    assert run.outputs == []


def test_join_step_bounded_run_with_an_empty_side_ends_with_everything_unmatched() -> None:
    run = JoinRun(step_rules(PLAIN, drain=True))
    run.append(RIGHT, record("a", 10))
    run.commit(at_end=[LEFT, RIGHT])
    assert [output.topic for output in run.outputs] == ["unmatched-right"]


def test_join_step_right_side_a_day_behind_then_fast_pauses_left_and_has_the_same_answer() -> None:
    day = 86_400_000
    left = [Event(f"{number}", day + number) for number in range(200)]
    right = [Event("old", number * 10_000) for number in range(0, day // 10_000, 100)]
    right += [Event(f"{number}", day + number + 2) for number in range(0, 200, 2)]
    run = JoinRun(step_rules(PLAIN, max_drift_ms=60_000), {LEFT: records(left), RIGHT: records(right)})
    run.read(RIGHT, 1)
    run.read(LEFT, 10)
    while run.offsets[RIGHT] < len(right) or run.offsets[LEFT] < len(left):
        is_behind = right[run.offsets[RIGHT] - 1].time < day - 60_000
        assert (PARTITIONS[LEFT] in run.step.blocked) == is_behind
        if not is_behind:
            run.read(LEFT, 10)
        run.read(RIGHT, 1)
        run.commit()
    assert outcome(run) == answer(left, right, PLAIN)


@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_join_step_time_that_jumps_ahead_delays_no_other_verdict_of_its_own_side(side: Side) -> None:
    """A jump makes earlier times of this side late. Records of the other side get a verdict, and none gets two."""
    day = 86_400_000
    run = JoinRun(step_rules(PLAIN))
    run.append(side, record("jump", day), record("a", 10))
    run.append(side.opposite, record("a", 10), record("jump", day))
    run.commit()
    assert [late["id"] for late in run.texts("join-late")] == ["a"]
    assert [pair["id"] for pair in run.texts("joined")] == ["jump"]
    assert [unmatched["id"] for unmatched in run.texts(f"unmatched-{side.opposite.value}")] == ["a"]


@pytest.mark.parametrize(("side", "rules"), [(LEFT, JoinRules(5, 3, 0)), (RIGHT, JoinRules(5, 0, 3))])
def test_join_step_jump_back_in_time_within_the_disorder_of_its_side_is_paired(side: Side, rules: JoinRules) -> None:
    run = JoinRun(step_rules(rules))
    run.append(side, record("jump", 13), record("a", 10))
    outputs = run.append(side.opposite, record("a", 10))
    assert [(output.topic, output.key) for output in outputs] == [("joined", b"a")]
    (late,) = run.append(side, record("b", 9))
    assert late.topic == "join-late"


def test_join_step_verdict_depends_on_the_partitions_of_its_own_number_only() -> None:
    step = JoinStep(step_rules(PLAIN))
    for number in range(2):
        for side in Side:
            step.assign(TopicPartition(TOPICS[side], number), None, ())

    def feed(side: Side, number: int, *records: OutputRecord) -> list[str]:
        batch = InMemoryBatch(number, list(records), range(len(records)), topic=TOPICS[side])
        return [output.topic for output in step.process(batch, NOW)]

    assert feed(LEFT, 0, record("a", 10)) == []
    assert feed(LEFT, 1, record("b", 10)) == []
    assert feed(RIGHT, 0, record("x", 1_000)) == ["unmatched-left"]
    assert list(step.flush(NOW)) != []  # the changelog
    assert feed(RIGHT, 1, record("b", 11)) == ["joined"]
