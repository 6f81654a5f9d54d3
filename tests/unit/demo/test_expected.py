"""The demo's own count: which tuples are counted, and how differences are told."""

from __future__ import annotations

from collections import Counter

import numpy as np

from skewless.datasets import Chunk, splitter_settings
from skewless.demo.expected import Counting, Expected, differences
from skewless.splitter.formats import create_format
from skewless.transport.sender import RUN


def count(name: str, partitions: int, *chunks: list[tuple[int, str]]) -> Expected:
    counting = Counting(create_format(splitter_settings(name)), 1000, partitions)
    for chunk in chunks:
        counting.add(Chunk([value.encode() for _, value in chunk], np.array([time for time, _ in chunk])))
    return counting.result


def test_tuples_are_counted_by_window_and_key() -> None:
    result = count("lines", 1, [(0, "a b a"), (999, "a")], [(1000, "a")])
    assert result.cells == {(0, "a"): 3, (0, "b"): 1, (1000, "a"): 1}
    assert (result.tuples, result.windows) == (5, [0, 1000])


def test_a_record_older_than_one_before_it_in_its_partition_is_late() -> None:
    result = count("lines", 1, [(500, "a"), (400, "b c"), (500, "d")], [(499, "e")])
    assert (set(result.cells), result.late, result.behind_ms) == ({(0, "a"), (0, "d")}, 3, 100)


def test_records_of_other_partitions_make_nobody_late() -> None:
    ahead = [(5000, "a")] * RUN
    result = count("lines", 2, ahead, [(1000, "b")])
    assert (result.cells[1000, "b"], result.late) == (1, 0)
    assert count("lines", 1, ahead, [(1000, "b")]).late == 1


def test_records_that_cannot_be_read_are_counted_apart_and_their_time_is_ignored() -> None:
    result = count("pages", 1, [(9000, "no time"), (1000, "1000\ta")])
    assert (result.cells, result.unreadable.total(), result.late) == ({(1000, "a"): 1}, 1, 0)


def test_equal_counts_have_no_differences() -> None:
    assert list(differences(Counter({(0, "a"): 1}), Counter({(0, "a"): 1}))) == []


def test_differences_name_what_is_missing_too_much_or_unexpected() -> None:
    found = list(differences(Counter({(0, "a"): 2, (0, "b"): 1}), Counter({(0, "a"): 3, (0, "c"): 1})))
    assert found == [
        "window 0, key 'a': 3 instead of 2",
        "window 0, key 'b': 0 instead of 1",
        "window 0, key 'c': 1 instead of 0",
    ]


def test_many_differences_are_cut() -> None:
    assert list(differences(Counter({(0, str(key)): 1 for key in range(9)}), Counter()))[-1] == "and 4 more"
