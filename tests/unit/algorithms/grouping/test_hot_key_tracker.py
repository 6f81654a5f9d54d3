from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest

from skewless.algorithms.grouping.hot_key_tracker import KeySpace, count_promoted
from skewless.algorithms.grouping.key_load_table import BABY, NONE, OLD, TEENAGE, KeyTable
from skewless.algorithms.grouping.options import DynamicKeyOptions

NAMES = {"none": NONE, "baby": BABY, "teenage": TEENAGE, "old": OLD}


class Space:
    """A key space without a grouping, filled by the test after the first promotion. Times are seconds since then."""

    def __init__(self, **options: object) -> None:
        self.table = KeyTable(4, 2)
        self.space = KeySpace(self.table, DynamicKeyOptions.model_validate(options))
        self.space.begin(0)
        self.until(0)

    def see(self, counts: dict[str, int], at: int = 0) -> None:
        """Add this many tuples of each key. New keys enter as baby keys."""
        slots = self.table.slots_of(list(counts))
        columns = self.table.columns
        columns.generation[slots] = np.maximum(columns.generation[slots], BABY)
        columns.tuples[slots] += list(counts.values())
        columns.seen[slots] = at * 1_000

    def until(self, seconds: int) -> None:
        self.space.promote_until(seconds * 1_000)

    def of(self, generation: str) -> set[str]:
        slots = np.flatnonzero(self.table.columns.generation == NAMES[generation]).tolist()
        return {self.table.names[slot] for slot in slots if self.table.columns.home[slot] >= 0}


def promoted(source: list[int], target: list[int], capacity: int) -> tuple[int, int]:
    return count_promoted(np.array(source, dtype=np.int64), np.array(target, dtype=np.int64), capacity)


def test_promotion_into_free_places_adds_keys() -> None:
    assert promoted([9, 8, 7], [9], 3) == (2, 0)


def test_promotion_into_a_full_space_replaces_its_last_keys_while_others_have_more_tuples() -> None:
    assert promoted([7, 9, 8], [8, 1], 2) == (0, 1)
    assert promoted([7, 9, 9], [8, 1], 2) == (0, 2)


def test_promotion_into_the_last_free_place_adds_the_first_key_and_replaces_with_the_next() -> None:
    assert promoted([9, 8, 7], [1, 5], 3) == (1, 2)


def test_promotion_of_keys_with_equal_counts_replaces_nothing() -> None:
    assert promoted([5], [5], 1) == (0, 0)


def test_promotion_is_limited_to_the_number_of_places() -> None:
    assert promoted([9, 8, 7, 6], [1], 2) == (1, 1)
    assert promoted([9, 8, 7, 6], [], 2) == (2, 0)
    assert promoted([9, 8, 7, 6], [1, 1, 1], 2) == (0, 2)


def test_promotion_into_a_space_without_places_moves_nothing() -> None:
    assert promoted([9], [], 0) == (0, 0)


def test_key_space_baby_keys_become_teenage_after_15_s_and_old_after_45_s() -> None:
    space = Space()
    space.see({"a": 5})
    space.until(14)
    assert space.of("baby") == {"a"}
    space.until(15)
    assert space.of("teenage") == {"a"}
    space.until(44)
    assert space.of("teenage") == {"a"}
    space.until(45)
    assert space.of("old") == {"a"}


def test_key_space_after_the_first_promotion_promotes_teenage_keys_every_60_s() -> None:
    space = Space()
    space.until(45)
    space.see({"a": 5})
    space.until(104)
    assert space.of("teenage") == {"a"}
    space.until(105)
    assert space.of("old") == {"a"}


def test_key_space_sizes_are_a_tenth_four_tenths_and_half_of_the_distinct_keys() -> None:
    space = Space(distinct_keys=19)
    space.see({f"{number:02}": 100 - number for number in range(40)})
    space.until(45)
    assert [len(space.of(name)) for name in ("old", "teenage", "baby")] == [1, 6, 2]
    space.see({f"new {number:02}": 1 for number in range(40)}, at=46)
    space.until(60)
    assert [len(space.of(name)) for name in ("old", "teenage", "baby")] == [1, 7, 8]
    space.see({f"newer {number:02}": 1 for number in range(40)}, at=61)
    space.until(75)
    assert [len(space.of(name)) for name in ("old", "teenage", "baby")] == [1, 7, 9]


def test_key_space_full_evicts_baby_keys_with_fewest_tuples_then_last_by_name() -> None:
    space = Space(distinct_keys=10)
    space.see({"é": 2, "z": 2, "日": 2, "a": 2, "": 2, "🎈": 2, "few": 1, "many": 9})
    space.until(15)
    assert space.of("baby") | space.of("teenage") == {"many", "", "a", "z", "é"}


def test_key_space_evicted_key_that_returns_starts_at_zero() -> None:
    space = Space(distinct_keys=10)
    space.see({f"{number}": number for number in range(8)})
    space.until(15)
    assert "0" in space.of("none")
    space.see({"0": 1})
    assert space.table.columns.tuples[space.table.slots_of(["0"])] == [1]


@pytest.mark.parametrize(("rules", "old"), [("published", set[str]()), ("reference", {"a"})])
def test_key_space_keys_unseen_for_an_hour_leave_by_the_published_rules_only(rules: str, old: set[str]) -> None:
    space = Space(rules=rules)
    space.see({"a": 5})
    space.until(3_600)
    assert space.of("old") == {"a"}
    space.until(3_615)
    assert space.of("old") == old


def test_key_space_century_without_tuples_is_processed_in_bounded_time() -> None:
    space, seconds = Space(), 100 * 365 * 86_400
    space.see({f"{number}": number for number in range(1_000)})
    space.until(seconds)
    assert space.space.promotions == seconds // 15 + 1
    assert space.of("old") | space.of("teenage") == set()


class UnreadNames(list[str]):
    def __getitem__(self, index: object) -> NoReturn:
        raise AssertionError("names are compared")


def test_key_space_promotion_without_ties_at_a_limit_compares_no_names() -> None:
    space = Space()
    space.see({f"{number}": 1 + number // 10 for number in range(1_000)})
    space.table.names = UnreadNames(space.table.names)
    space.until(15)
    assert (np.bincount(space.table.columns.generation)[1:] == [10, 40]).all()
    space.until(300)
    assert (np.bincount(space.table.columns.generation)[1:] == [0, 40, 10]).all()


def test_key_space_hottest_keys_are_old_ones_by_descending_tuples() -> None:
    space = Space()
    space.see({"b": 5, "a": 5, "c": 7})
    space.table.columns.used[space.table.slots_of(["c"])] = 0b1011
    space.until(45)
    space.see({"d": 100}, at=45)
    assert [(hot.key, hot.tuples, hot.workers) for hot in space.space.hottest(10)] == [
        ("c", 7, 3),
        ("a", 5, 0),
        ("b", 5, 0),
    ]
