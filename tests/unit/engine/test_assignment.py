"""Life cycle of an assigned partition: its transitions, its offsets and its in-flight batches."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from itertools import product

import pytest

from helpers.engine import at
from skewless.engine import assignment as module
from skewless.engine.assignment import (
    TRANSITIONS,
    AssignedPartition,
    Assignment,
    IllegalEventError,
    InFlightBatch,
    PartitionEvent,
    PartitionState,
)
from skewless.wire.topic_partition import TopicPartition


def assignment(*partitions: int) -> Assignment:
    chosen = Assignment()
    begin(chosen, *partitions)
    return chosen


def begin(chosen: Assignment, *partitions: int) -> None:
    chosen.begin(map(at, partitions))
    for partition in partitions:
        chosen[at(partition)].start(0, None, None)
    chosen.started()


def deliver(chosen: Assignment, partition: int, next_offset: int, size: int) -> bool:
    return chosen.deliver(at(partition), chosen.generation, InFlightBatch(next_offset, size))


# Transitions


def test_transitions_every_state_is_reachable_and_every_event_occurs() -> None:
    reached, left = {PartitionState.RESTORING}, [PartitionState.RESTORING]
    while left:
        following = set(TRANSITIONS[left.pop()].values()) - reached
        reached |= following
        left += following
    assert reached == set(PartitionState)
    assert {event for events in TRANSITIONS.values() for event in events} == set(PartitionEvent)
    assert TRANSITIONS.keys() == set(PartitionState)


@pytest.mark.parametrize(("state", "event"), list(product(PartitionState, PartitionEvent)))
def test_apply_follows_the_table_and_refuses_other_events(state: PartitionState, event: PartitionEvent) -> None:
    record = AssignedPartition(at(0), state)
    following = TRANSITIONS[state].get(event)
    if following is None:
        with pytest.raises(IllegalEventError, match=re.escape(f"{event.value} is illegal in state {state.value}")):
            record.apply(event)
        assert record.state is state
    else:
        record.apply(event)
        assert record.state is following


def test_theory_of_operation_names_every_state_and_event() -> None:
    theory = module.__doc__ or ""
    assert [state.name for state in PartitionState if not re.search(rf"^{state.name}\b", theory, re.MULTILINE)] == []
    assert [event.value for event in PartitionEvent if not re.search(rf"\b{event.value}\b", theory)] == []


# In-flight batches


def test_process_of_each_partition_makes_room() -> None:
    some = assignment(0, 1)
    deliver(some, 0, 10, 100)
    deliver(some, 0, 20, 50)
    deliver(some, 1, 5, 7)
    some.process(at(0), 10, None)
    some.process(at(1), 5, None)
    in_flight = [len(some[at(partition)].in_flight) for partition in (0, 1)]
    assert (in_flight, some.retired_batches, some.retired_bytes) == ([1, 0], 2, 107)


def test_process_a_batch_in_parts_keeps_it_in_flight_until_its_last_one() -> None:
    some = assignment(0)
    deliver(some, 0, 10, 100)
    some.process(at(0), 4, None)
    assert (some.in_flight_batches(), some.any_in_flight, some.retired_batches) == (1, True, 0)
    some.process(at(0), 10, None)
    assert (some.in_flight_batches(), some.any_in_flight, some.retired_batches) == (0, False, 1)
    assert some.retired_bytes == 100


@pytest.mark.parametrize("offset", [4, 11, 20])
def test_process_out_of_order_is_refused(offset: int) -> None:
    some = assignment(0)
    deliver(some, 0, 10, 1)
    deliver(some, 0, 20, 1)
    some.process(at(0), 5, None)
    with pytest.raises(IllegalEventError, match=f"batch up to {offset} is processed out of order"):
        some.process(at(0), offset, None)


def test_process_of_a_batch_that_was_never_delivered_is_refused() -> None:
    with pytest.raises(IllegalEventError, match="out of order"):
        assignment(0).process(at(0), 1, None)


@pytest.mark.parametrize("lose", [lambda some: some.revoke([at(0), at(1)]), Assignment.reset], ids=["revoke", "reset"])
def test_lost_partition_drops_its_batches_in_flight(lose: Callable[[Assignment], None]) -> None:
    some = assignment(0, 1)
    generation = some.generation
    deliver(some, 0, 10, 100)
    deliver(some, 0, 20, 50)
    some.process(at(0), 10, None)
    lose(some)
    assert (some.in_flight_batches(), some.retired_bytes, some.retired_batches) == (0, 150, 2)
    assert not some.deliver(at(0), generation, InFlightBatch(30, 5))
    assert some.retired_batches == 3


def test_partition_that_comes_back_starts_at_its_committed_offset() -> None:
    some = assignment(0)
    deliver(some, 0, 10, 100)
    some.process(at(0), 10, None)
    some.revoke([at(0)])
    begin(some, 0)
    deliver(some, 0, 3, 1)
    some.process(at(0), 3, None)
    assert (some.in_flight_batches(), some.retired_batches) == (0, 2)


# Assignment


def test_begin_replaces_an_assignment_that_was_not_restored() -> None:
    some = Assignment()
    some.begin([at(0), at(1)])
    some.begin([at(1), at(2)])
    assert some.restoring == {at(1), at(2)}
    assert not some.partitions
    assert some.awaits_restore


def test_begin_with_a_partition_that_is_owned_is_refused() -> None:
    with pytest.raises(IllegalEventError, match="assigned, but it is running"):
        assignment(0).begin([at(0)])


def test_reset_makes_all_partitions_wait_for_being_restored() -> None:
    some = assignment(0, 1)
    some.reset()
    assert some.restoring == {at(0), at(1)}
    assert not some.partitions
    assert (some.awaits_restore, some.established) == (True, False)


def test_partitions_of_two_topics_with_one_number_are_two() -> None:
    left, right = TopicPartition("left", 0), TopicPartition("right", 0)
    some = Assignment()
    some.begin([left, right])
    for partition in (left, right):
        some[partition].start(0, None, None)
    some.started()
    assert some.deliver(left, some.generation, InFlightBatch(7, 1))
    assert (some[left].delivered_offset, some[right].delivered_offset) == (7, 0)


def test_lag_counts_no_markers_after_the_last_record() -> None:
    record = AssignedPartition(at(0))
    record.start(5, None, None)
    assert record.lag(log_start=0, log_end=9, fetch_position=9) == 0
    record.deliver(InFlightBatch(8, 1))
    assert record.lag(log_start=0, log_end=9, fetch_position=9) == 4
    assert record.lag(log_start=7, log_end=9, fetch_position=9) == 2


def test_partition_that_is_paused_is_at_its_end_no_more() -> None:
    some = assignment(0)
    some[at(0)].at_end = True
    some.apply(PartitionEvent.PAUSE, [at(0)])
    some.apply(PartitionEvent.RESUME, [at(0)])
    assert not some[at(0)].at_end


# Threads


@pytest.mark.parametrize(
    "call",
    [
        lambda some: some.begin([]),
        lambda some: some.started(),
        lambda some: some.revoke([]),
        lambda some: some.abandon_restore(),
        Assignment.reset,
        lambda some: some.apply(PartitionEvent.PAUSE, []),
        lambda some: some.deliver(at(0), 0, InFlightBatch(1, 1)),
        lambda some: some.process(at(0), 1, None),
    ],
)
def test_change_in_another_thread_is_refused(call: Callable[[Assignment], object]) -> None:
    some, errors = assignment(0), list[BaseException]()

    def change() -> None:
        try:
            call(some)
        except IllegalEventError as error:
            errors.append(error)

    thread = threading.Thread(target=change)
    thread.start()
    thread.join()
    assert [str(error) for error in errors] == ["the assignment belongs to the event loop; call it through the loop"]
