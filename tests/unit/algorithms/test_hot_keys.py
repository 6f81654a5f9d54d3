"""Hot keys: those with more tuples than an even share of one worker."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.algorithms.hot_keys import KeyLoad, TickLoad, changes


def tick(*pairs: tuple[str, int], workers: int = 4) -> TickLoad:
    total = sum(tuples for _, tuples in pairs)
    return TickLoad(pa.array([key for key, _ in pairs]), np.array([tuples for _, tuples in pairs]), workers, total)


@pytest.mark.parametrize(("tuples", "is_hot"), [(99, False), (100, False), (101, True)])
def test_key_above_the_share_of_one_worker_is_hot(tuples: int, *, is_hot: bool) -> None:
    load = tick(("a", tuples), *((f"k{number}", 1) for number in range(400 - tuples)))
    assert load.hot() == ({"a": KeyLoad(tuples, 1)} if is_hot else {})


def test_changes_name_keys_that_rise_and_fall_with_their_loads() -> None:
    load = tick(("a", 150), ("a", 100), ("b", 50), ("c", 300))
    assert changes({"b": 0, "c": 0, "gone": 0}, load) == (
        {"a": KeyLoad(250, 2)},
        {"b": KeyLoad(50, 1), "gone": KeyLoad(0, 0)},
    )


def test_changes_of_a_tick_with_few_tuples_are_none() -> None:
    assert changes({"b": 0}, tick(("a", 399))) == ({}, {})
    assert changes({"b": 0}, tick(("a", 400))) == ({"a": KeyLoad(400, 1)}, {"b": KeyLoad(0, 0)})


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 1_000)), min_size=1), st.integers(1, 8))
def test_hot_keys_equal_the_definition(pairs: list[tuple[str, int]], workers: int) -> None:
    counts: Counter[str] = Counter()
    for key, tuples in pairs:
        counts[key] += tuples
    expected = {key for key, count in counts.items() if count * workers > counts.total()}
    found = tick(*pairs, workers=workers).hot()
    assert found.keys() == expected
    assert len(found) < max(2, workers)
    assert all(found[key].tuples == counts[key] for key in expected)
