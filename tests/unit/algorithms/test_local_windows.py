"""Local windows: rows leave once, when the watermark passes their window, and the first held record is known."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from helpers.batches import FORMAT
from skewless.algorithms import local_buffer
from skewless.algorithms.aggregates import AGGREGATES, wire_columns_of
from skewless.algorithms.local_buffer import Flush, LocalRules
from skewless.algorithms.local_windows import LocalWindows, Opening

COLUMNS = wire_columns_of([AGGREGATES["sum"]])
LATENESS_MS = 3


def windows_of(max_rows: int = 1000) -> LocalWindows:
    return LocalWindows(LocalRules(columns=COLUMNS, pane_ms=10, max_rows=max_rows), LATENESS_MS)


def add(windows: LocalWindows, rows: Sequence[tuple[str, int]], offset: int, max_time: int | None = None) -> None:
    """Hold tuples (key, time) of records with consecutive offsets. `max_time` is the largest time before them."""
    tuples = FORMAT.from_rows([(key, 1, time) for key, time in rows])
    before = [] if max_time is None else [max_time]
    windows.openings |= {
        start: Opening(offset + index, max([*before, *(time for _, time in rows[:index])], default=None))
        for start, index in windows.first_of_new(tuples["time"].to_numpy()).items()
    }
    windows.add(tuples)


def counts(flush: Flush | None) -> dict[tuple[int, str], int]:
    assert flush is not None
    return {(row["pane"], row["key"]): row["count"] for row in flush.rows.to_pylist()}


def test_local_windows_closed_by_the_watermark_leave_once() -> None:
    windows = windows_of()
    add(windows, [("a", 1), ("b", 9), ("a", 10), ("a", 2), ("a", 25)], offset=7)
    assert windows.close(9) is None
    assert counts(windows.close(10)) == {(0, "a"): 2, (0, "b"): 1}
    assert windows.close(19) is None
    assert counts(windows.close(31)) == {(10, "a"): 1, (20, "a"): 1}
    assert (windows.first_held(), windows.tuples, len(windows)) == (None, 0, 0)
    assert windows.floor == 30


def test_local_windows_without_a_watermark_stay_open() -> None:
    windows = windows_of()
    add(windows, [("a", 1)], offset=0)
    assert windows.close(None) is None
    assert windows.tuples == 1


def test_local_windows_first_held_record_is_that_of_the_open_windows_only() -> None:
    windows = windows_of()
    add(windows, [("a", 1), ("a", 12), ("a", 2)], offset=7)
    assert windows.first_held() == Opening(7, None)
    windows.close(10)
    assert windows.first_held() == Opening(8, 1)
    add(windows, [("a", 11), ("a", 31)], offset=10, max_time=12)
    windows.close(20)
    assert windows.first_held() == Opening(11, 12)
    assert counts(windows.take()) == {(30, "a"): 1}
    assert len(windows) == 0
    assert windows.first_held() is None


def test_local_windows_largest_watermark_never_decreases() -> None:
    windows = windows_of()
    add(windows, [("a", 12), ("a", 25)], offset=0)
    assert windows.max_watermark() == 10
    windows.close(22)
    # The window begins at 20, no tuple before 12 - 3 is accepted, and windows are closed until 20.
    assert windows.max_watermark() == 20
    windows.take()
    assert windows.max_watermark() is None
    # The watermark 25 - 3 was sent. The next tuple is in the middle of its window.
    add(windows, [("a", 23)], offset=2, max_time=25)
    assert windows.max_watermark() == 22


def test_local_windows_restored_keep_the_closed_time() -> None:
    windows, again = windows_of(), windows_of()
    add(windows, [("a", 26)], offset=3, max_time=16)
    again.restore(windows.reduced(), windows.tuples, windows.openings, floor=20)
    assert again.max_watermark() == 20
    assert again.close(18) is None
    assert again.floor == 20
    assert counts(again.close(30)) == {(20, "a"): 1}


@pytest.mark.parametrize("max_rows", [1, 2, 1000])
def test_local_windows_any_bound_keeps_all_tuples(max_rows: int) -> None:
    windows, taken = windows_of(max_rows), []
    for number in range(50):
        add(windows, [(f"k{number % 7}", number)], offset=number, max_time=number - 1)
        taken += [windows.close(number - LATENESS_MS)]
        taken += [windows.take()] if windows.is_full else []
    taken += [windows.take()] if len(windows) else []
    flushes = [flush for flush in taken if flush is not None]
    assert sum(flush.tuples for flush in flushes) == 50
    assert pa.concat_tables(flush.rows for flush in flushes)["count"].to_pylist().count(0) == 0
    assert sum(sum(counts(flush).values()) for flush in flushes) == 50


def test_local_windows_many_keys_in_one_window_are_full_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_buffer, "BUFFER_BYTES", 100_000)
    by_rows, by_bytes = windows_of(max_rows=10), windows_of()
    offset = 0
    while not (by_rows.is_full and by_bytes.is_full):
        if not by_rows.is_full:
            add(by_rows, [(f"key {offset}", 1)], offset)
        if not by_bytes.is_full:
            add(by_bytes, [(f"{offset:01000d}", 1)], offset)
        offset += 1
        assert (len(by_rows) <= 10, len(by_bytes) <= 110) == (True, True)
    assert by_bytes.tuples > 10
