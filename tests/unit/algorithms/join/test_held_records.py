"""Held records: those of an id that occurs often against a plain list, their order, and their memory."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest

from skewless.algorithms.join.held_records import HeldRecords, records_of


@pytest.mark.parametrize("count", [2, 8, 9, 40])
def test_held_records_of_one_id_are_claimed_by_offset_and_expire_by_time(count: int) -> None:
    random = np.random.default_rng(count)
    for _ in range(50):
        times = random.integers(30, size=count).tolist()
        held = HeldRecords()
        held.add(records_of(["a"] * count, np.array(times), np.arange(count), [b""] * count))
        left = list(enumerate(times))
        for before in range(31):
            earliest = int(random.integers(30))
            latest = earliest + int(random.integers(8))
            expected = next(((offset, time) for offset, time in left if earliest <= time <= latest), None)
            slot = held.claim_first("a", earliest, latest)
            claimed = held.pop_claimed(np.array([slot] if slot >= 0 else [], dtype=np.intp))
            assert claimed.offsets.tolist() == ([] if expected is None else [expected[0]])
            expired = held.expire(before).offsets.tolist()
            assert expired == [offset for offset, time in left if time < before and (offset, time) != expected]
            left = [(offset, time) for offset, time in left if time >= before and (offset, time) != expected]
        assert (len(held), held.repeated({"a"})) == (0, set())


def test_held_records_of_several_batches_expire_by_time_and_offset() -> None:
    held = HeldRecords()
    for first, times in enumerate([[1, 5], [3, 5], [9]]):
        offsets = np.arange(2 * first, 2 * first + len(times))
        held.add(records_of([f"{offset}" for offset in offsets], np.array(times), offsets, [b""] * len(times)))
    assert held.expire(9).offsets.tolist() == [0, 2, 1, 3]


def test_held_records_that_found_partners_take_no_memory() -> None:
    count, value = 10_000, b"x" * 100
    references = sys.getrefcount(value)
    held = HeldRecords()
    ids = [f"{number}" for number in range(count)]
    tracemalloc.start()
    for batch in range(20):
        offsets = np.arange(batch * count, (batch + 1) * count)
        held.add(records_of(ids, np.arange(count), offsets, [value] * count))
        slots = held.find(ids)
        held.claim(ids)
        held.pop_claimed(slots)
        held.changed_blocks()
        if batch == 4:
            before, _ = tracemalloc.get_traced_memory()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (held.bytes, sys.getrefcount(value)) == (0, references)
    assert after - before < 8 * count  # an entry of the expiry queue takes 24 bytes, and 15 batches were added
