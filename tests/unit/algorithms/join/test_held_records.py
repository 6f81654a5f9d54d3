"""Held records of an id that occurs often, against a plain list."""

from __future__ import annotations

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
