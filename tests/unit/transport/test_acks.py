from __future__ import annotations

import pytest

from skewless.transport.acks import Acks


def acks(*partitions: int) -> Acks:
    chosen = Acks()
    for partition in partitions:
        chosen.assign(partition)
    return chosen


def test_done_batches_of_each_partition_make_room() -> None:
    some = acks(0, 1)
    some.handed(0, 10, 100)
    some.handed(0, 20, 50)
    some.handed(1, 5, 7)
    some.done(0, 10)
    some.done(1, 5)
    assert (some.waiting(0), some.waiting(1), some.retired_batches, some.retired_bytes) == (1, 0, 2, 107)


def test_a_batch_may_be_done_in_parts_and_waits_until_its_last_one() -> None:
    some = acks(0)
    some.handed(0, 10, 100)
    some.done(0, 4)
    assert (some.waiting(0), some.any_waiting, some.retired_batches) == (1, True, 0)
    some.done(0, 10)
    assert (some.waiting(0), some.any_waiting, some.retired_batches, some.retired_bytes) == (0, False, 1, 100)


@pytest.mark.parametrize("offset", [4, 11, 20])
def test_batches_done_out_of_order_are_refused(offset: int) -> None:
    some = acks(0)
    some.handed(0, 10, 1)
    some.handed(0, 20, 1)
    some.done(0, 5)
    with pytest.raises(ValueError, match=f"partition 0: batch up to {offset} is done out of order"):
        some.done(0, offset)


def test_a_batch_that_was_never_handed_over_cannot_be_done() -> None:
    with pytest.raises(ValueError, match="out of order"):
        acks(0).done(0, 1)


def test_a_revoked_partition_commits_nothing_and_its_batches_make_room() -> None:
    some = acks(0, 1)
    some.handed(0, 10, 100)
    some.handed(0, 20, 50)
    some.done(0, 10)
    some.revoke(0)
    assert (some.waiting(0), some.retired_bytes, some.retired_batches) == (0, 150, 2)


def test_a_partition_that_comes_back_begins_anew() -> None:
    some = acks(0)
    some.handed(0, 10, 100)
    some.done(0, 10)
    some.assign(0)
    some.handed(0, 3, 1)
    some.done(0, 3)
    assert (some.waiting(0), some.retired_batches) == (0, 2)
