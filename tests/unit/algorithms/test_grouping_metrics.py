"""The measures of groupings, compared with their definitions one tuple at a time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.algorithms.grouping_metrics import KeyCounts, Spread
from skewless.algorithms.open_windows import OWN_ROW_BYTES, OpenWindows

Row = tuple[int, int, int]
WINDOW = 10
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 69), st.integers(-30, 60)), min_size=1, max_size=80)


def spread_of(rows: list[Row], workers: int = 70, cut: int = 0) -> Spread:
    windows = OpenWindows(WINDOW)
    spread = Spread(workers, windows)
    for part in (rows[:cut], rows[cut:]):
        keys, to, times = (np.array(column) for column in zip(*part, strict=True)) if part else (np.zeros(0),) * 3
        spread.add(windows.rows_of(keys.astype(np.int64), times.astype(np.int64)), to.astype(np.int32))
    return spread


def by_window(rows: list[Row]) -> dict[int, list[Row]]:
    windows: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        windows[row[2] // WINDOW].append(row)
    return windows


def replication(rows: list[Row]) -> float:
    return len({row[:2] for row in rows}) / len({key for key, _, _ in rows})


def defined(rows: list[Row], workers: int = 70) -> dict[str, Any]:
    loads = Counter(worker for _, worker, _ in rows)
    average, highest = len(rows) / workers, max(loads.values())
    windows = by_window(rows).values()
    keys_in_windows = sum(len({key for key, _, _ in window}) for window in windows)
    pairs_in_windows = sum(len({row[:2] for row in window}) for window in windows)
    return {
        "imbalance": (highest - average) / len(rows),
        "imbalance_tuples": highest - average,
        "max_over_avg": highest / average,
        "rate": average / highest,
        "replication_factor": replication(rows),
        "replication_max": max(len({w for k, w, _ in rows if k == key}) for key, _, _ in rows),
        "pairs": len({row[:2] for row in rows}),
        "windows": len(windows),
        "window_replication": pairs_in_windows / keys_in_windows,
        "window_replication_max": max(map(replication, windows)),
        "window_max_over_avg": sum(max(Counter(w for _, w, _ in window).values()) for window in windows) / average,
        "aggregation_cost": pairs_in_windows / len(windows),
    }


@settings(deadline=None)  # the first call may compile
@given(ROWS, st.integers(0, 80))
def test_grouping_metrics_batches_split_anywhere_equal_their_definitions(rows: list[Row], cut: int) -> None:
    measures = spread_of(rows, cut=cut).measures()
    for name, value in defined(rows).items():
        assert measures[name] == pytest.approx(value), name
    assert measures["tuples_by_worker"] == [sum(w == worker for _, w, _ in rows) for worker in range(70)]


@settings(deadline=None)  # the first call may compile
@given(ROWS)
def test_grouping_metrics_measured_twice_are_equal(rows: list[Row]) -> None:
    spread = spread_of(rows)
    assert spread.measures() == spread.measures()


def test_grouping_metrics_without_tuples_are_balanced_and_zero() -> None:
    measures = Spread(4, OpenWindows(WINDOW)).measures()
    assert (measures["imbalance"], measures["max_over_avg"], measures["rate"]) == (0.0, 1.0, 1.0)
    assert (measures["replication_factor"], measures["pairs"], measures["windows"], measures["aggregation_cost"]) == (
        0.0,
        0,
        0,
        0.0,
    )


def test_grouping_metrics_key_on_more_workers_than_one_word_of_bits_is_counted() -> None:
    rows = [(0, worker, 0) for worker in range(200)]
    measures = spread_of(rows, workers=200).measures()
    assert (measures["replication_factor"], measures["replication_max"], measures["max_over_avg"]) == (200.0, 200, 1.0)


def test_grouping_metrics_of_many_keys_are_exact() -> None:
    keys = np.arange(5000, dtype=np.int64)
    windows = OpenWindows(WINDOW)
    spread = Spread(3, windows)
    for worker in (0, 2):
        spread.add(windows.rows_of(keys, np.zeros(5000, dtype=np.int64)), np.full(5000, worker, dtype=np.int32))
    assert (spread.measures()["pairs"], spread.measures()["replication_factor"]) == (10_000, 2.0)
    assert spread.loads.tolist() == [5000, 0, 5000]


def test_grouping_metrics_late_tuples_count_in_their_own_window() -> None:
    measures = spread_of([(0, 0, 5), (0, 1, 15), (0, 2, 25), (0, 3, 5), (0, 1, 15)]).measures()
    assert (measures["windows"], measures["window_replication_max"], measures["aggregation_cost"]) == (3, 2.0, 4 / 3)


@settings(deadline=None)  # the first call may compile
@given(ROWS, st.integers(1, 20))
def test_grouping_metrics_of_windows_that_are_closed_for_memory_equal_their_definitions(
    rows: list[Row], batch: int
) -> None:
    """With little memory only the newest window remains open, which suffices for tuples in order."""
    rows.sort(key=lambda row: row[2])
    windows = OpenWindows(WINDOW, open_bytes=1)
    spreads = [Spread(70, windows), Spread(5, windows)]
    for first in range(0, len(rows), batch):
        keys, to, times = (np.array(column) for column in zip(*rows[first : first + batch], strict=True))
        in_windows = windows.rows_of(keys, times)
        spreads[0].add(in_windows, to.astype(np.int32))
        spreads[1].add(in_windows, (to % 5).astype(np.int32))
        windows.close_oldest()
        assert windows.windows == 1
    of_few_workers = [(key, worker % 5, time) for key, worker, time in rows]
    for spread, expected in zip(spreads, (defined(rows), defined(of_few_workers, 5)), strict=True):
        measures = spread.measures()
        assert {name: measures[name] for name in expected} == pytest.approx(expected)


def test_grouping_metrics_tuple_of_a_closed_window_counts_in_the_oldest_open_one() -> None:
    windows = OpenWindows(WINDOW, open_bytes=1)
    spread = Spread(4, windows)
    for worker, time in ((0, 5), (1, 15), (2, 5), (3, 15)):
        in_windows = windows.rows_of(np.array([0]), np.array([time]))
        spread.add(in_windows, np.array([worker], dtype=np.int32))
        windows.close_oldest()
    assert (spread.measures()["windows"], spread.measures()["window_replication_max"]) == (2, 3.0)


def test_grouping_metrics_open_windows_are_closed_from_their_limit_of_memory_on() -> None:
    """A row of one spread of up to 64 workers needs 8 bytes more, and a window 8 bytes per worker."""
    windows = OpenWindows(WINDOW, open_bytes=10 * (OWN_ROW_BYTES + 5 * 8 + 8))
    Spread(5, windows)
    for number in range(10):
        windows.rows_of(np.array([0]), np.array([number * WINDOW]))
        windows.close_oldest()
    assert (windows.windows, windows.rows) == (10, 10)
    windows.rows_of(np.array([0]), np.array([10 * WINDOW]))
    windows.close_oldest()
    assert (windows.windows, windows.rows) == (7, 7)


def test_grouping_metrics_largest_replication_of_a_window_is_a_mean_over_its_keys() -> None:
    measures = spread_of([(0, 0, 5), (0, 1, 5), (0, 2, 5), (1, 0, 5), (1, 0, 15)]).measures()
    assert (measures["replication_max"], measures["window_replication_max"]) == (3, 2.0)


def test_grouping_metrics_worst_window_is_among_those_with_enough_tuples() -> None:
    few = [(0, 0, 5)] * 199
    uneven = [(0, 0, 15)] * 150 + [(1, 1, 15)] * 50
    even = [(0, 0, 25)] * 500 + [(1, 1, 25)] * 500
    assert spread_of(few, workers=2).measures()["worst_window_max_over_avg"] is None
    assert spread_of(few + uneven + even, workers=2).measures()["worst_window_max_over_avg"] == 1.5


def counts_of(counts: list[int]) -> KeyCounts:
    counted = KeyCounts()
    counted.add(np.arange(len(counts)), np.array(counts, dtype=np.int64))
    return counted


def test_key_counts_hottest_key_has_its_share_of_all_batches() -> None:
    counted = counts_of([5, 1])
    counted.add(np.array([1, 2]), np.array([10, 4]))
    assert (counted.p1, counted.keys, counted.tuples) == (11 / 20, 3, 20)


@settings(deadline=None)  # the first call may compile
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50), st.integers(1, 100))
def test_replication_bound_is_the_mean_of_the_key_shares_rounded_up(counts: list[int], workers: int) -> None:
    needed = sum(math.ceil(count * workers / sum(counts)) for count in counts)  # exact enough, because counts are small
    assert counts_of(counts).replication_bound(workers) == pytest.approx(needed / len(counts), abs=1 / len(counts))


@pytest.mark.parametrize(("workers", "bound"), [(5, 1.13), (10, 1.30), (20, 1.60), (50, 2.50), (100, 4.00)])
def test_replication_bound_of_the_published_stream_is_the_published_one(workers: int, bound: float) -> None:
    counts = [24_100, 3_100, *[100] * 28]
    assert counts_of(counts).replication_bound(workers) == pytest.approx(bound, abs=0.005)


def test_key_counts_without_tuples_have_no_hottest_key_and_no_bound() -> None:
    assert (KeyCounts().p1, KeyCounts().replication_bound(5)) == (0.0, 0.0)
