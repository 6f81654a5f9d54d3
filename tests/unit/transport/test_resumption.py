"""Start checks of a consumer group, on plain data."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from confluent_kafka import TopicPartition

from skewless.errors import BrokerError, ConfigurationError
from skewless.shape import Shape, write_saved
from skewless.transport.questions import LogRange
from skewless.transport.resumption import (
    Checkpoint,
    Input,
    check_first_start,
    check_log_ranges,
    checkpoints_of,
)

SHAPE = Shape(
    window_ms=60_000,
    tick_ms=60_000,
    columns="count",
    decimals=0,
    max_workers=64,
    aggregator_partitions=4,
    emit="updates",
    lateness_ms=0,
)
TUPLES = Input("p-router", "p.tuples", internal=True, shape=SHAPE)
SOURCE = Input("p-splitter", "raw", internal=False, shape=SHAPE)


def at(offset: int, metadata: str = "", partition: int = 0) -> dict[int, TopicPartition]:
    return {partition: TopicPartition("t", partition, offset, metadata)}


# Checkpoints


@pytest.mark.parametrize(("offset", "metadata"), [(-1001, ""), (0, "")], ids=["none", "zero without metadata"])
def test_an_offset_that_no_commit_of_ours_made_is_no_checkpoint(offset: int, metadata: str) -> None:
    assert checkpoints_of(TUPLES, at(offset, metadata)) == {}


@pytest.mark.parametrize("offset", [0, 7])
def test_an_offset_with_our_metadata_is_a_checkpoint(offset: int) -> None:
    assert checkpoints_of(TUPLES, at(offset, write_saved("123", SHAPE))) == {0: Checkpoint(offset, "123")}


@pytest.mark.parametrize("source", [TUPLES, SOURCE, replace(TUPLES, shape=None)], ids=["internal", "source", "plain"])
def test_an_offset_that_was_set_by_hand_is_refused_with_the_remedy(source: Input) -> None:
    with pytest.raises(BrokerError) as caught:
        checkpoints_of(source, at(7, "", 3) | at(0, "", 4) | at(9, write_saved("1", source.shape), 5))
    assert f"group {source.group} has offsets of topic {source.topic}" in str(caught.value)
    assert "in partition 3 offset 7: were they set by kafka-consumer-groups.sh?" in str(caught.value)
    assert "give the pipeline another name" in str(caught.value)


@pytest.mark.parametrize("metadata", ["1700000000000", '123\n[60000,60000,"count",0]', "foreign"])
def test_a_checkpoint_of_another_version_is_refused(metadata: str) -> None:
    with pytest.raises(ConfigurationError, match="group p-router was last committed by another version of Skewless"):
        checkpoints_of(TUPLES, at(7, metadata))


def test_a_checkpoint_of_another_schema_is_refused_with_a_line_for_each_setting() -> None:
    before = msgspec.structs.replace(SHAPE, emit="final", max_workers=32)
    with pytest.raises(ConfigurationError) as caught:
        checkpoints_of(TUPLES, at(7, write_saved("1", before), 0) | at(8, write_saved("1", SHAPE), 1))
    remedy = "when group p-router last committed; set it back, or give the pipeline another name"
    assert caught.value.problems == (
        f"aggregator.emit: is updates, was final {remedy}",
        f"worker_input.max_workers: is 64, was 32 {remedy}",
    )


# Log starts


@pytest.mark.parametrize("source", [TUPLES, SOURCE], ids=["internal", "source"])
@pytest.mark.parametrize("start", [0, 4, 5])
def test_a_log_that_begins_at_the_checkpoint_or_before_has_lost_nothing(source: Input, start: int) -> None:
    check_log_ranges(source, {2: Checkpoint(5, "1")}, logs({2: start}))


@pytest.mark.parametrize(
    ("source", "cause"),
    [(TUPLES, "topics.internal_retention_s"), (SOURCE, "the topic's retention is shorter than")],
    ids=["internal", "source"],
)
def test_a_checkpoint_below_the_log_start_is_refused_with_both_offsets(source: Input, cause: str) -> None:
    with pytest.raises(BrokerError) as caught:
        check_log_ranges(source, {1: Checkpoint(9, "1"), 2: Checkpoint(5, "1")}, logs({1: 0, 2: 6}))
    message = str(caught.value)
    assert f"records of topic {source.topic} were deleted before group {source.group} read them" in message
    assert "in partition 2 (committed offset 5, log start offset 6):" in message
    assert cause in message
    assert "another name" in message


def test_an_internal_topic_without_its_first_records_is_refused_before_the_first_commit() -> None:
    with pytest.raises(BrokerError) as caught:
        check_log_ranges(TUPLES, {1: Checkpoint(9, "1")}, logs({0: 0, 1: 3, 2: 6}))
    assert "records of topic p.tuples were deleted before group p-router first committed" in str(caught.value)
    assert "in partition 2 (no committed offset, log start offset 6): " in str(caught.value)


def test_the_users_topic_may_begin_anywhere_before_the_first_commit() -> None:
    check_log_ranges(SOURCE, {}, logs({0: 0, 1: 3}))


def test_a_message_lists_five_partitions_at_most() -> None:
    with pytest.raises(BrokerError, match=r"partition 4 \(no committed offset, log start offset 1\) and 3 more: "):
        check_log_ranges(TUPLES, {}, logs(dict.fromkeys(range(8), 1)))


def test_committed_offset_after_the_log_end_is_refused() -> None:
    ranges = {1: LogRange(0, 9), 2: LogRange(0, 4)}
    check_log_ranges(SOURCE, {1: Checkpoint(9, "1"), 2: Checkpoint(4, "1")}, ranges)
    with pytest.raises(BrokerError, match=r"partition 2 \(committed offset 5, log end offset 4\).*created again"):
        check_log_ranges(SOURCE, {1: Checkpoint(9, "1"), 2: Checkpoint(5, "1")}, ranges)


def logs(starts: dict[int, int]) -> dict[int, LogRange]:
    return {partition: LogRange(start, start + 100) for partition, start in starts.items()}


# First starts


class Traces:
    """Results by input partition, and how often they were looked for."""

    def __init__(self, *partitions: int) -> None:
        self.partitions = partitions

    def of_group(self) -> str | None:
        return "topic p.out" if self.partitions else None

    def of_partition(self, partition: int) -> str | None:
        return "topic p.out" if partition in self.partitions else None


def first_start(traces: Traces, *, begun: bool, restored: tuple[int, ...] = ()) -> None:
    check_first_start(TUPLES, [0, 1], restored, traces, begun=begun)


def test_a_group_without_offsets_and_results_may_start() -> None:
    first_start(Traces(), begun=False)


def test_a_group_without_offsets_and_with_results_of_any_partition_is_refused() -> None:
    expected = r"group p-router has no offset in any partition of topic p\.tuples, but has written to topic p\.out"
    with pytest.raises(BrokerError, match=expected) as caught:
        first_start(Traces(7), begun=False)
    assert "give the pipeline another name, or delete its topics" in str(caught.value)


def test_a_group_without_offsets_and_with_state_is_refused() -> None:
    with pytest.raises(BrokerError, match="has written to its changelog"):
        first_start(Traces(), begun=False, restored=(1,))


def test_results_of_other_partitions_do_not_refuse_a_first_start_in_a_group_that_has_begun() -> None:
    first_start(Traces(7), begun=True)


def test_one_partition_without_its_offset_and_with_results_is_refused() -> None:
    with pytest.raises(BrokerError, match=r"has no offset in partition 1 of topic p\.tuples, but has written to topic"):
        first_start(Traces(1), begun=True)
    with pytest.raises(BrokerError, match=r"partition 0 of topic p\.tuples, but has written to its changelog"):
        first_start(Traces(), begun=True, restored=(0,))


def test_partitions_that_have_checkpoints_are_not_looked_for() -> None:
    check_first_start(TUPLES, [], [0], Traces(0), begun=False)
