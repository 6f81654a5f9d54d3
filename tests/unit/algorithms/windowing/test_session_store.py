"""Sessions merge, swallow each other, close, open again and expire; a restored store continues as the former one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.aggregates import counting_column
from skewless.algorithms.windowing import window
from skewless.algorithms.windowing.session_store import SessionStore
from skewless.algorithms.windowing.sessions import FIRST, LAST, SessionWindows
from skewless.algorithms.windowing.window import Chunk, ChunkId, Emission
from skewless.wire.columns import read_table
from skewless.wire.partials import write_partials

COUNT = counting_column("count")
COLUMNS = (COUNT, FIRST, LAST)
WINDOWS = SessionWindows(gap_ms=10, max_ms=1000)
Log = dict[int, dict[ChunkId, pa.Table]]
"""Changelog records by span."""


class Sessions:
    """A store with its changelog."""

    def __init__(self, *, updates: bool = True, retention_ms: int = 500) -> None:
        self._options: Mapping[str, Any] = {"retention_ms": retention_ms, "updates": updates}
        self.store = SessionStore(COLUMNS, WINDOWS, **self._options)
        self.log: Log = {}

    def add(self, *tuples: tuple[str, int]) -> pa.Table | None:
        """Merge tuples (key, time), each as a partial session of its own. Returns those that were rejected."""
        keys, times = zip(*tuples, strict=True)
        array = np.array(times, dtype=np.int64)
        columns = {"count": np.ones_like(array), FIRST.name: array, LAST.name: array}
        partials = pa.table({"pane": array // 5 * 5, "key": pa.array(keys, pa.string()), **columns})
        for start in self.store.windows_to_reopen(partials["pane"].to_numpy()):
            self.store.reopen(start, self.log[start])
        return self.store.merge(partials)

    def flush(self, watermark: int | None = None) -> list[tuple[Any, ...]]:
        """Return what is emitted: key, start, end, count and revision; or key and start of what is deleted."""
        emitted: list[tuple[Any, ...]] = []
        for part in self.store.flush(watermark, 0):
            if isinstance(part, Emission):
                emitted += rows_of(part)
            else:
                self._write(part)
        return sorted(emitted)

    def _write(self, chunk: Chunk) -> None:
        if chunk.table is None:
            del self.log[chunk.window][chunk.id]
        else:
            self.log.setdefault(chunk.window, {})[chunk.id] = read_table(write_partials(chunk.table))

    def restart(self) -> None:
        """Replace the store by one that is restored from the changelog."""
        restored = SessionStore(COLUMNS, WINDOWS, **self._options)
        restored.restore_time(self.store.closed_until, self.store.kept_ms)
        for start, chunks in self.log.items():
            if chunks:
                restored.restore(start, chunks)
        self.store = restored


def rows_of(emission: Emission) -> Iterable[tuple[Any, ...]]:
    names = ("window_start",) if emission.deletes else ("window_start", "window_end", "count", "revision")
    return zip(emission.keys.to_pylist(), *(emission.data[name].tolist() for name in names), strict=True)


@pytest.fixture(params=[False, True], ids=["", "restarted"])
def restarts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the store is restored after each flush. Chunks are compacted early."""
    monkeypatch.setattr(window, "COMPACTION_THRESHOLD", 2)
    return bool(request.param)


def run(sessions: Sessions, steps: Iterable[tuple[list[tuple[str, int]], int | None]], *, restarts: bool) -> list[Any]:
    emitted = []
    for tuples, watermark in steps:
        if tuples:
            assert sessions.add(*tuples) is None
        emitted.append(sessions.flush(watermark))
        if restarts:
            sessions.restart()
    return emitted


def test_session_store_tuple_between_two_sessions_merges_them_and_deletes_the_later_one(*, restarts: bool) -> None:
    steps = [
        ([("a", 100), ("a", 118), ("b", 100)], None),
        ([("a", 109)], None),
        ([("a", 91)], None),
        ([], 2000),
    ]
    assert run(Sessions(), steps, restarts=restarts) == [
        [("a", 100, 110, 1, 0), ("a", 118, 128, 1, 0), ("b", 100, 110, 1, 0)],
        [("a", 100, 128, 3, 1), ("a", 118)],
        [("a", 91, 128, 4, 0), ("a", 100)],
        [],
    ]


def test_session_store_newest_span_that_has_expired_ends_with_its_time() -> None:
    sessions = Sessions(retention_ms=0)
    sessions.add(("a", 100))
    sessions.flush()
    assert sessions.store.end == 110
    sessions.flush(5000)
    assert sessions.store.starts == []
    assert sessions.store.end == 1000


def test_session_store_distance_of_the_gap_separates_and_the_span_cuts(*, restarts: bool) -> None:
    steps = [([("a", 100), ("a", 110), ("a", 119), ("b", 998), ("b", 1001)], 5000)]
    (emitted,) = run(Sessions(updates=False), steps, restarts=restarts)
    assert emitted == [("a", 100, 110, 1, 0), ("a", 110, 129, 2, 0), ("b", 998, 1000, 1, 0), ("b", 1001, 1011, 1, 0)]


def test_session_store_final_emits_each_session_when_it_closes(*, restarts: bool) -> None:
    steps = [([("a", 100), ("a", 300)], 109), ([], 110), ([("a", 304)], 250), ([], 314), ([], 2000)]
    assert run(Sessions(updates=False), steps, restarts=restarts) == [
        [],
        [("a", 100, 110, 1, 0)],
        [],
        [("a", 300, 314, 2, 0)],
        [],
    ]


def test_session_store_final_closed_session_that_opens_again_is_revised_when_it_closes(*, restarts: bool) -> None:
    steps = [
        ([("a", 100), ("b", 100)], 115),
        ([("a", 108), ("a", 107), ("b", 95)], 116),
        ([], 118),
        ([("a", 99)], 119),
        ([("c", 50)], 120),
    ]
    assert run(Sessions(updates=False), steps, restarts=restarts) == [
        [("a", 100, 110, 1, 0), ("b", 100, 110, 1, 0)],
        [("b", 95, 110, 2, 0), ("b", 100)],
        [("a", 100, 118, 3, 1)],
        [("a", 99, 118, 4, 0), ("a", 100)],
        [("c", 50, 60, 1, 0)],
    ]


def test_session_store_final_closed_session_that_a_later_tuple_extends_is_one_session(*, restarts: bool) -> None:
    steps = [([("a", 100)], 115), ([("a", 108)], 116), ([], 118)]
    assert run(Sessions(updates=False), steps, restarts=restarts) == [
        [("a", 100, 110, 1, 0)],
        [],
        [("a", 100, 118, 2, 1)],
    ]


def test_session_store_final_session_that_is_open_again_and_begins_earlier_deletes_its_emission(
    *, restarts: bool
) -> None:
    steps = [([("a", 100)], 115), ([("a", 108)], 116), ([("a", 95)], 117), ([], 118)]
    assert run(Sessions(updates=False), steps, restarts=restarts) == [
        [("a", 100, 110, 1, 0)],
        [],
        [("a", 100)],
        [("a", 95, 118, 3, 0)],
    ]


def test_session_windows_partial_sessions_of_two_spans_stay_apart_within_the_gap() -> None:
    times = pa.array([2000, 995, 1999, 1000])
    table = pa.table({"key": pa.array(["a"] * 4), "count": pa.array([1] * 4), FIRST.name: times, LAST.name: times})
    sessions = WINDOWS.sessions(table, COLUMNS)
    assert sessions[FIRST.name].to_pylist() == [995, 1000, 1999, 2000]


@pytest.mark.parametrize("updates", [True, False])
def test_session_store_closed_span_is_read_again_for_a_correction(*, updates: bool, restarts: bool) -> None:
    steps = [([("a", 100), ("a", 200)], None), ([], 1200), ([("a", 205)], 1200), ([("a", 206)], 1200)]
    _, _, *corrections = run(Sessions(updates=updates), steps, restarts=restarts)
    assert corrections == [[("a", 200, 215, 2, 1)], [("a", 200, 216, 3, 2)]]


def test_session_store_span_beyond_its_retention_rejects_partials_and_has_no_chunks(*, restarts: bool) -> None:
    sessions = Sessions()
    run(sessions, [([("a", 100)], 1200), ([], 1500), ([], 1500)], restarts=restarts)
    assert sessions.log == {0: {}}
    rejected = sessions.add(("a", 100), ("a", 1400))
    assert rejected is not None
    assert rejected["pane"].to_pylist() == [100]
    assert sessions.flush() == [("a", 1400, 1410, 1, 0)]


def test_session_store_end_is_that_of_the_newest_session() -> None:
    sessions = Sessions()
    ends = [sessions.store.end]
    sessions.add(("a", 100), ("b", 130), ("c", 90))
    sessions.store.absorb()
    ends.append(sessions.store.end)
    assert ends == [None, 140]
    sessions.flush(140)
    assert sessions.store.open == 1
