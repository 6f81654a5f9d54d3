"""Start checks of a consumer group, on plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from skewless.engine import first_offsets
from skewless.engine.first_offsets import commit_first_offsets
from skewless.engine.restore import _restored_partition
from skewless.engine.start_checks import (
    Checkpoint,
    Input,
    OffsetsLostError,
    PriorOutput,
    check_first_start,
    check_log_ranges,
    check_topic_id,
    checkpoints_of,
)
from skewless.errors import BrokerError, ConfigurationError
from skewless.kafka.consumer.broker_queries import LogRange
from skewless.kafka.settings import KafkaSettings
from skewless.wire.offset_metadata import encode_offset_metadata
from skewless.wire.state_schema import StateSchema
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

SHAPE = StateSchema(
    window=60_000,
    tick_ms=60_000,
    columns="count",
    decimals=0,
    max_workers=64,
    aggregator_partitions=4,
    emit="updates",
    lateness_ms=0,
)
TUPLES = Input("p-router", "p.tuples", kind="internal", state_schema=SHAPE)
SOURCE = Input("p-splitter", "raw", kind="user", state_schema=SHAPE, skip_to={})
AGGREGATES = Input("p-sink", "p.aggregates", kind="public", state_schema=SHAPE)


def at(offset: int, metadata: str = "", partition: int = 0) -> dict[int, CommittedOffset]:
    return {partition: CommittedOffset(offset, metadata)}


# Topics


@pytest.mark.parametrize("source", [TUPLES, SOURCE, AGGREGATES], ids=lambda source: source.kind)
def test_start_checks_topic_created_again_since_the_commit_is_refused_with_partitions_and_remedy(
    source: Input,
) -> None:
    committed = at(5000, encode_offset_metadata("1", SHAPE, 7), 2) | at(9, encode_offset_metadata("1", SHAPE, 8), 3)
    with pytest.raises(BrokerError) as caught:
        check_topic_id(source, committed, 8)
    expected = f"topic {source.topic} was deleted and created again after group {source.group} had read partition 2 "
    assert f"{expected}up to offset 5000. " in str(caught.value)
    assert "or give the pipeline another name" in str(caught.value)


@pytest.mark.parametrize(("offset", "stored", "topic_id"), [(5000, 7, 7), (5000, None, 7), (5000, 7, None), (0, 7, 8)])
def test_start_checks_topic_with_the_same_or_an_unknown_id_or_of_which_nothing_was_read_continues(
    offset: int, stored: int | None, topic_id: int | None
) -> None:
    check_topic_id(SOURCE, at(offset, encode_offset_metadata("1", SHAPE, stored)), topic_id)


# Checkpoints


@pytest.mark.parametrize("offset", [0, 7])
def test_start_checks_offset_with_metadata_is_a_checkpoint(offset: int) -> None:
    assert checkpoints_of(TUPLES, at(offset, encode_offset_metadata("123", SHAPE))) == {0: Checkpoint(offset, "123")}


@pytest.mark.parametrize(
    "source", [TUPLES, SOURCE, replace(TUPLES, state_schema=None)], ids=["internal", "source", "plain"]
)
def test_start_checks_offset_set_by_hand_is_refused_with_a_remedy(source: Input) -> None:
    with pytest.raises(BrokerError) as caught:
        checkpoints_of(source, at(7, "", 3) | at(0, "", 4) | at(9, encode_offset_metadata("1", source.state_schema), 5))
    assert f"group {source.group} has offsets of topic {source.topic}" in str(caught.value)
    assert "in partition 3 offset 7, partition 4 offset 0: were they set by kafka-" in str(caught.value)
    assert "give the pipeline another name" in str(caught.value)


@pytest.mark.parametrize(
    "metadata",
    ["1700000000000", '123\n[60000,60000,"count",0]', '{}\n[2,60000,60000,"count",0,64,4,"updates",0]', "foreign"],
)
def test_start_checks_checkpoint_of_another_version_is_refused(metadata: str) -> None:
    with pytest.raises(ConfigurationError, match="group p-router was last committed by another version of Skewless"):
        checkpoints_of(TUPLES, at(7, metadata))


def test_start_checks_checkpoint_of_another_schema_is_refused_with_a_line_per_setting() -> None:
    before = msgspec.structs.replace(SHAPE, emit="final", max_workers=32)
    with pytest.raises(ConfigurationError) as caught:
        checkpoints_of(
            TUPLES, at(7, encode_offset_metadata("1", before), 0) | at(8, encode_offset_metadata("1", SHAPE), 1)
        )
    remedy = (
        "when group p-router last committed; set it back, give the pipeline another name, or count everything again "
        "with `skewless reset --to-start`"
    )
    assert caught.value.problems == (
        f"aggregator.emit: is updates, was final {remedy}",
        f"worker_input.max_workers: is 64, was 32 {remedy}",
    )


def test_start_checks_checkpoint_without_the_digests_of_the_parsing_is_accepted() -> None:
    current = replace(TUPLES, state_schema=msgspec.structs.replace(SHAPE, late_rule="window_end", parsing="k" * 20))
    before = msgspec.structs.replace(SHAPE, late_rule="window_end")
    assert checkpoints_of(current, at(7, encode_offset_metadata("1", before))) == {0: Checkpoint(7, "1")}


# Log starts


@pytest.mark.parametrize("source", [TUPLES, SOURCE, AGGREGATES], ids=["internal", "source", "public"])
@pytest.mark.parametrize("start", [0, 4, 5])
def test_start_checks_log_that_starts_at_or_before_the_checkpoint_passes(source: Input, start: int) -> None:
    check_log_ranges(source, {2: Checkpoint(5, "1")}, logs({2: start}))


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        (TUPLES, "topics.internal_retention_s"),
        (SOURCE, "the topic's retention is shorter than"),
        (AGGREGATES, "the topic's retention is shorter than"),
    ],
    ids=["internal", "source", "public"],
)
def test_start_checks_checkpoint_below_the_log_start_is_refused_with_both_offsets(source: Input, cause: str) -> None:
    with pytest.raises(BrokerError) as caught:
        check_log_ranges(source, {1: Checkpoint(9, "1"), 2: Checkpoint(5, "1")}, logs({1: 0, 2: 6}))
    message = str(caught.value)
    assert f"records of topic {source.topic} were deleted before group {source.group} read them" in message
    assert "in partition 2 (committed offset 5, log start offset 6):" in message
    assert cause in message
    assert "another name" in message


def test_start_checks_internal_topic_without_its_first_records_is_refused_at_first_start() -> None:
    with pytest.raises(BrokerError) as caught:
        check_log_ranges(TUPLES, {1: Checkpoint(9, "1")}, logs({0: 0, 1: 3, 2: 6}))
    assert "records of topic p.tuples were deleted before group p-router first committed" in str(caught.value)
    assert "in partition 2 (no committed offset, log start offset 6): " in str(caught.value)


@pytest.mark.parametrize("source", [SOURCE, AGGREGATES], ids=["source", "public"])
def test_start_checks_source_or_public_topic_without_its_first_records_passes_at_first_start(source: Input) -> None:
    check_log_ranges(source, {}, logs({0: 0, 1: 3}))


def test_start_checks_public_topic_with_deleted_records_has_no_remedy_of_the_source() -> None:
    with pytest.raises(BrokerError) as caught:
        check_log_ranges(AGGREGATES, {0: Checkpoint(2, "1")}, logs({0: 3}))
    assert "source.skip_to" not in str(caught.value)


def test_start_checks_error_of_many_partitions_lists_at_most_five() -> None:
    with pytest.raises(BrokerError, match=r"partition 4 \(no committed offset, log start offset 1\) and 3 more: "):
        check_log_ranges(TUPLES, {}, logs(dict.fromkeys(range(8), 1)))


def test_start_checks_committed_offset_after_the_log_end_is_refused() -> None:
    ranges = {1: LogRange(0, 9), 2: LogRange(0, 4)}
    check_log_ranges(SOURCE, {1: Checkpoint(9, "1"), 2: Checkpoint(4, "1")}, ranges)
    with pytest.raises(BrokerError, match=r"partition 2 \(committed offset 5, log end offset 4\).*created again"):
        check_log_ranges(SOURCE, {1: Checkpoint(9, "1"), 2: Checkpoint(5, "1")}, ranges)


def logs(starts: dict[int, int]) -> dict[int, LogRange]:
    return {partition: LogRange(start, start + 100) for partition, start in starts.items()}


# First starts


class Traces(PriorOutput):
    """Results by input partition, and the number of searches for them."""

    def __init__(self, *partitions: int) -> None:
        self.partitions = partitions

    def of_group(self) -> str | None:
        return "topic p.out" if self.partitions else None

    def of_partition(self, partition: TopicPartition) -> str | None:
        return "topic p.out" if partition.partition in self.partitions else None


def first_start(traces: Traces, *, begun: bool, restored: tuple[int, ...] = ()) -> None:
    check_first_start(TUPLES, [0, 1], restored, traces, begun=begun)


def test_start_checks_group_without_offsets_and_results_passes() -> None:
    first_start(Traces(), begun=False)


def test_start_checks_group_without_offsets_but_with_results_is_refused() -> None:
    expected = (
        r"group p-router has no offset in any partition of topic p\.tuples, but has written to topic p\.out: the topic "
        "was deleted and created again, which deletes its offsets, or .* `skewless reset --to-start`.* another name$"
    )
    with pytest.raises(BrokerError, match=expected):
        first_start(Traces(7), begun=False)


def test_start_checks_output_with_a_group_of_its_own_names_this_group_and_its_own_advice() -> None:
    class Copies(Traces):
        group = "p-copies"
        advice = "Delete the copy"

    for begun in (False, True):
        with pytest.raises(BrokerError, match=r"^group p-copies has no offset in .*\. Delete the copy$"):
            first_start(Copies(1), begun=begun)


def test_start_checks_group_without_offsets_but_with_state_is_refused() -> None:
    with pytest.raises(BrokerError, match="has written to its changelog"):
        first_start(Traces(), begun=False, restored=(1,))


def test_start_checks_partition_without_offset_ignores_results_of_other_partitions() -> None:
    first_start(Traces(7), begun=True)


def test_start_checks_partition_without_offset_but_with_results_is_refused() -> None:
    with pytest.raises(BrokerError, match=r"has no offset in partition 1 of topic p\.tuples, but has written to topic"):
        first_start(Traces(1), begun=True)
    with pytest.raises(BrokerError, match=r"partition 0 of topic p\.tuples, but has written to its changelog"):
        first_start(Traces(), begun=True, restored=(0,))


def test_start_checks_partitions_with_checkpoints_are_not_searched_for_results() -> None:
    check_first_start(TUPLES, [], [0], Traces(0), begun=False)


class Offsets:
    """The broker. `committed_later` are the offsets of the group from the second request on."""

    kafka = KafkaSettings()

    def __init__(self, committed_later: Mapping[int, CommittedOffset]) -> None:
        self._answers: list[Mapping[int, CommittedOffset]] = [{}, committed_later]

    def committed(self, _group: str, _topic: str) -> Mapping[int, CommittedOffset]:
        return self._answers.pop(0)

    def at_start(self, _topic: str, _start: str | int, _skip_to: Mapping[int, int]) -> dict[int, int]:
        return {0: 5}


def first_offsets_of(committed_later: Mapping[int, CommittedOffset], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_offsets, "read_topic_ids", lambda _options, _topics: {})
    commit_first_offsets(cast("Any", Offsets(committed_later)), [SOURCE], "latest", str, Traces(0))


def test_commit_first_offsets_that_another_process_has_committed_and_written_from_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first_offsets_of(at(7), monkeypatch)


def test_commit_first_offsets_of_a_group_with_results_only_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OffsetsLostError, match=r"has written to topic p\.out"):
        first_offsets_of({}, monkeypatch)


@pytest.mark.parametrize(("offset", "leader_epoch"), [(5, 3), (9, None)])
def test_restored_partition_that_skips_records_has_no_leader_epoch(offset: int, leader_epoch: int | None) -> None:
    """The epoch is that of the committed offset. With another offset, a broker may report a truncated log."""
    restored = _restored_partition(Checkpoint(offset, None), (), CommittedOffset(5, "", 3))
    assert (restored.offset, restored.leader_epoch) == (offset, leader_epoch)
