"""Changelog records of windows have a bounded size, and a kill between two of them neither loses nor doubles rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from helpers.aggregates import ADDED, DIGITS, digits_of, newest_of
from skewless.algorithms import record_size
from skewless.algorithms.aggregates import as_python, columns_of
from skewless.algorithms.aggregates.base import COUNT
from skewless.algorithms.partials import to_partials
from skewless.algorithms.windowing import window, window_store
from skewless.algorithms.windowing.assigner import HoppingWindows, tumbling
from skewless.algorithms.windowing.window import COMPACTION_THRESHOLD, EMIT_COUNT, Chunk, ChunkId, Emission
from skewless.algorithms.windowing.window_store import WindowStore
from skewless.wire.columns import read_table, write_table

Log = dict[ChunkId, pa.Table]
"""Changelog records of the only window."""


def windows(log: Mapping[ChunkId, pa.Table] | None = None) -> WindowStore:
    made = WindowStore([COUNT], windows=tumbling(1000), retention_ms=1000, updates=True)
    if log:
        made.restore(0, log)
    return made


def partials(keys: Iterable[str]) -> pa.Table:
    names = pa.array(keys, pa.string())
    ones = np.ones(len(names), dtype=np.int64)
    return pa.table({"pane": 0 * ones, "key": names, "count": ones})


def flush(made: WindowStore, keys: Iterable[str]) -> list[Chunk]:
    made.merge(partials(keys))
    return chunks_of(made.flush(None, 0))


def chunks_of(parts: Iterable[Chunk | Emission]) -> list[Chunk]:
    return [part for part in parts if isinstance(part, Chunk)]


def write(log: Log, chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        if chunk.table is None:
            del log[chunk.id]
        else:
            assert chunk.id not in log
            log[chunk.id] = read_table(write_table(chunk.table))


def restored_counts(log: Log) -> dict[str, int]:
    """Return the counts by key of a window that was restored, without what `flush` would add."""
    restored = WindowStore([COUNT], windows=tumbling(1000), retention_ms=1000, updates=False)
    restored.restore(0, log)
    emissions = [part for part in restored.flush(1000, 0) if isinstance(part, Emission)]
    return {
        key: int(count)
        for emission in emissions
        for key, count in zip(emission.keys.to_pylist(), emission.data["count"], strict=True)
    }


def counts(log: Log) -> dict[str, int]:
    found: Counter[str] = Counter()
    for table in log.values():
        found.update(dict(zip(table["key"].to_pylist(), table["count"].to_pylist(), strict=True)))
    return dict(found)


def test_window_store_400_000_keys_are_written_and_compacted_in_bounded_records() -> None:
    keys = [f"key-{number:011d}" for number in range(400_000)]
    made, log = windows(), Log()
    for number in range(COMPACTION_THRESHOLD + 1):
        chunks = flush(made, keys if number == 0 else keys[:1])
        assert all(
            chunk.table is None or len(write_table(chunk.table)) < 2 * record_size.RECORD_BYTES for chunk in chunks
        )
        write(log, chunks)
    assert sum(chunk.compacted for chunk in log) > 1
    assert counts(log) == dict.fromkeys(keys, 1) | {keys[0]: COMPACTION_THRESHOLD + 1}


def test_window_store_large_window_with_few_changes_is_compacted_after_as_many_rows_as_it_has() -> None:
    keys, log, made = [f"key-{number}" for number in range(10_000)], Log(), windows()
    write(log, flush(made, keys))
    compactions = []
    for number in range(500):
        if number % 100 == 99:
            made = windows()
            made.restore(0, log)
        chunks = flush(made, keys[:36])
        write(log, chunks)
        compactions += [number] * any(chunk.id.compacted and chunk.table is not None for chunk in chunks)
    # 36 changed rows count as 100, so 100 chunks as the 10,000 rows. The first chunk already has all of them.
    assert compactions == list(range(COMPACTION_THRESHOLD - 1, 500, 101))
    assert counts(log) == dict.fromkeys(keys[36:], 1) | dict.fromkeys(keys[:36], 501)


def test_window_store_with_another_retention_after_a_restart_keeps_expired_windows_expired() -> None:
    def partials(time: int) -> pa.Table:
        return pa.table({"pane": [time], "key": ["a"], "count": [1]})

    first = WindowStore([COUNT], windows=tumbling(1000), retention_ms=1000, updates=True)
    list(first.flush(4000, 0))
    assert (first.closed_until, first.kept_ms) == (4000, 1000)
    longer = WindowStore([COUNT], windows=tumbling(1000), retention_ms=10_000, updates=True)
    longer.restore_time(first.closed_until, first.kept_ms)
    list(longer.flush(5000, 0))
    assert longer.kept_ms == 2000
    for start, is_expired in ((0, True), (2000, True), (3000, False), (4000, False)):
        assert (longer.merge(partials(start)) is not None) == is_expired
    shorter = WindowStore([COUNT], windows=tumbling(1000), retention_ms=0, updates=True)
    shorter.restore_time(first.closed_until, first.kept_ms)
    list(shorter.flush(4000, 0))
    assert shorter.kept_ms == 0


def test_window_store_after_the_end_of_a_bounded_run_keeps_windows_by_the_time_of_the_records() -> None:
    def store() -> WindowStore:
        return WindowStore([COUNT], windows=tumbling(1000), retention_ms=1000, updates=True)

    first, second = store(), store()
    list(first.flush(4000, 0, 1500))
    assert (first.closed_until, first.expired_until) == (4000, 500)
    second.restore_time(first.closed_until, first.kept_ms)
    list(second.flush(1600, 0))
    assert (second.closed_until, second.expired_until) == (4000, 600)
    list(second.flush(4500, 0))
    assert (second.closed_until, second.expired_until) == (4500, 3500)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a changelog record to two keys, and compact from two records on."""
    monkeypatch.setattr(record_size, "RECORD_BYTES", 60)
    monkeypatch.setattr(window, "COMPACTION_THRESHOLD", 2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(6))
def test_window_store_killed_within_a_flush_counts_only_the_tuples_of_the_flush_again(seed: int) -> None:
    """Without transactions, records that were written before a kill stay, and the tuples are read again."""
    rng = np.random.default_rng(seed)
    log, made = Log(), windows()
    expected, again = Counter[str](), Counter[str]()
    kills_in_compactions = 0
    for _ in range(40):
        keys = [f"{key:03d}" for key in range(rng.integers(1, 7))]
        expected.update(keys)
        chunks = flush(made, keys)
        while rng.random() < 0.5:
            written = int(rng.integers(0, len(chunks) + 1))
            kills_in_compactions += 0 < written < len(chunks) and chunks[-1].table is None
            write(log, chunks[:written])
            again.update(keys)
            made = windows(log)
            if log and rng.random() < 0.2:
                made.merge(partials(["dropped"]))
                made.absorb()
                assert made.reduce(0, 0, lambda rows, _: rows.filter(pc.not_equal(rows["key"], "dropped"))) > 0
            chunks = flush(made, keys)
        write(log, chunks)
    found = restored_counts(log)
    assert {key: count for key, count in found.items() if not expected[key] <= count <= (expected + again)[key]} == {}
    assert found.keys() == expected.keys()
    assert kills_in_compactions > 2


@pytest.mark.usefixtures("small")
def test_window_store_killed_after_the_chunks_of_a_compaction_has_the_committed_tuples_once() -> None:
    made, log, keys = windows(), Log(), ["a", "b", "c"]
    flushes, chunks = 1, flush(made, keys)
    while chunks[-1].table is not None:
        write(log, chunks)
        flushes, chunks = flushes + 1, flush(made, keys)
    new = [chunk for chunk in chunks if chunk.table is not None]
    for written in range(len(chunks)):
        torn = dict(log)
        write(torn, chunks[:written])
        assert restored_counts(torn) == dict.fromkeys(keys, flushes - (written <= len(new)))


@pytest.mark.usefixtures("small")
def test_window_store_restored_window_continues_with_unused_record_numbers() -> None:
    whole, log = windows(), Log()
    for number in range(20):
        keys = [f"{key:03d}" for key in range(number % 7)] or ["last"]
        restored = windows(dict(reversed(log.items())))
        again = flush(restored, keys)
        chunks = flush(whole, keys)
        assert [(chunk.id, chunk.table) for chunk in again] == [(chunk.id, chunk.table) for chunk in chunks]
        write(log, chunks)


@pytest.mark.usefixtures("small")
def test_window_store_window_of_many_changelog_records_is_not_compacted_at_every_flush() -> None:
    made, written = windows(), 0
    keys = [f"{key:03d}" for key in range(100)]
    flush(made, keys)
    flush(made, ["000"])
    for _ in range(100):
        written += sum(chunk.table is not None for chunk in flush(made, ["000"]))
    assert written < 400


@pytest.mark.usefixtures("small")
def test_window_store_torn_compaction_of_0_3_leaves_out_no_tuple() -> None:
    # Version 0.3 left out no number before a compaction, and deleted the oldest chunk first.
    ones = pa.table({"key": ["a"], "count": [1], EMIT_COUNT.name: [1]})
    old = {ChunkId(number, compacted=False): ones for number in range(5)}
    compaction = {
        ChunkId(5, compacted=True): pa.table({"key": ["a"], "count": [6], EMIT_COUNT.name: [6]}),
        ChunkId(6, compacted=True): pa.table({"key": ["b"], "count": [1], EMIT_COUNT.name: [1]}),
    }
    for deleted in range(6):
        remaining = dict(list(old.items())[deleted:])
        assert restored_counts(remaining | compaction) == {"a": 6 + len(remaining), "b": 1}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("is_restarted", [False, True])
def test_window_store_expired_window_is_deleted_by_the_flush_after_the_next_commit(*, is_restarted: bool) -> None:
    made, log = windows(), Log()
    for _ in range(4):
        write(log, flush(made, [f"{key:03d}" for key in range(9)]))
    write(log, chunks_of(made.flush(1000, 0)))
    assert log != {}
    assert chunks_of(made.flush(2000, 0)) == []
    if is_restarted:
        time = made.closed_until, made.kept_ms
        made = WindowStore([COUNT], windows=tumbling(1000), retention_ms=1000, updates=True)
        made.restore_time(*time)
        made.restore(0, dict.fromkeys(log))
    write(log, chunks_of(made.flush(None, 0)))
    assert log == {}
    assert chunks_of(made.flush(3000, 0)) == []


def test_window_store_closed_windows_cost_a_flush_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = WindowStore([COUNT], windows=tumbling(1000), retention_ms=1_000_000, updates=True)
    for start in range(0, 500_000, 1000):
        made.merge(partials(["a"]).set_column(0, "pane", pa.array([start])))
        list(made.flush(start, 0))
    visited: list[int] = []

    def end(_windows: HoppingWindows, start: int) -> int:
        visited.append(start)
        return start + 1000

    monkeypatch.setattr(HoppingWindows, "end", end)
    list(made.flush(500_000, 0))
    assert (made.open, len(made), len(made.starts), set(visited)) == (0, 0, 0, {0, 499_000})


def test_window_store_window_that_expires_as_it_closes_is_complete_after_a_commit_that_failed() -> None:
    def add(store: WindowStore, count: int) -> None:
        store.merge(pa.table({"pane": [0], "key": ["a"], "count": [count]}))

    def closed(store: WindowStore, log: Log) -> list[int]:
        parts = list(store.flush(1000, 0))
        write(log, chunks_of(parts))
        return [int(count) for part in parts if isinstance(part, Emission) for count in part.data["count"]]

    made, log = WindowStore([COUNT], windows=tumbling(1000), retention_ms=0, updates=False), Log()
    add(made, 100)
    write(log, chunks_of(made.flush(None, 0)))
    add(made, 7)
    # Without transactions, the chunks of this flush are stored although its offsets are not committed.
    assert closed(made, log) == [107]
    again = WindowStore([COUNT], windows=tumbling(1000), retention_ms=0, updates=False)
    again.restore(0, log)
    add(again, 7)
    assert closed(again, log) == [114]


BINARY = columns_of(ADDED)


class BinaryRun:
    """Tuples of random keys that a store with binary columns merges, and their expected partials."""

    def __init__(self, store: WindowStore) -> None:
        self.store = store
        self.log = Log()
        self.results: dict[str, dict[str, Any]] = {}
        self._tuples: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._rng = np.random.default_rng(3)
        self.compactions = 0

    def merge(self) -> None:
        """Merge the partials of some tuples of the window from 0 to 1000."""
        keys = self._rng.choice(["a", "b", "c", "d"], 5).tolist()
        times, values = self._rng.integers(0, 1000, 5), self._rng.integers(-500, 500, 5)
        for key, time, value in zip(keys, times.tolist(), values.tolist(), strict=True):
            self._tuples[key].append((time, value))
        columns = {"key": pa.array(keys).dictionary_encode(), "value": pa.array(values), "time": pa.array(times)}
        self.store.merge(to_partials([pa.record_batch(columns)], 100, BINARY))

    def flush(self, watermark: int | None = None) -> None:
        """Flush, store changelog records and results, and check that the changed results are those of all tuples."""
        for part in self.store.flush(watermark, 0):
            if isinstance(part, Chunk):
                self.compactions += part.table is None
                write(self.log, [part])
            else:
                results = [aggregate.present(part.data, 0) for aggregate in ADDED]
                for key, *row in zip(part.keys.to_pylist(), *map(as_python, results), strict=True):
                    self.results[key] = dict(zip(["digits", "newest"], row, strict=True))
        assert self.results == {
            key: {"digits": digits_of(value for _, value in tuples), "newest": newest_of(tuples)}
            for key, tuples in self._tuples.items()
        }


def binary_store() -> WindowStore:
    return WindowStore(BINARY, windows=tumbling(1000), retention_ms=1000, updates=True)


@pytest.mark.usefixtures("small")
def test_binary_columns_survive_compaction_restore_closing_and_reopening() -> None:
    run = BinaryRun(binary_store())
    for number in range(30):
        run.merge()
        run.flush()
        if number % 7 == 6:
            run.store = binary_store()
            run.store.restore(0, run.log)
    assert run.compactions > 0
    run.flush(1000)
    assert run.store.windows_to_reopen(np.array([0])) == {0}
    restored = binary_store()
    restored.restore_time(1000, None)
    restored.restore(0, dict.fromkeys(run.log))
    assert restored.reopen(0, run.log)
    run.store = restored
    run.merge()
    run.flush()
    run.flush(2000)
    run.flush()
    assert run.log == {}


def one_set_per_key(members: int, pane: int = 0) -> pa.Table:
    """Return partials of 100 keys, each with a set of this many members of one byte."""
    keys, sets = pa.array([f"{key}" for key in range(100)]), pa.array([bytes(range(members))] * 100)
    return pa.table({"pane": pa.array([pane] * 100), "key": keys, "digit_set": sets})


def first_rows(rows: pa.Table, kept: int) -> pa.Table:
    return rows.slice(0, kept)


def test_window_store_reduced_window_takes_less_memory_and_is_reduced_again_only_if_it_may_become_smaller() -> None:
    store = WindowStore([COUNT], windows=tumbling(1000), retention_ms=0, updates=False)
    store.merge(partials(f"{key:03d}" for key in range(100)))
    store.absorb()
    before = store.nbytes
    assert store.reducible(100) == {}
    assert store.reducible(99) == {0: before}
    assert store.reduce(0, 90, first_rows) == before - store.nbytes > 0
    assert [kept for kept in (89, 90, 91) if store.reducible(kept)] == [89]
    assert store.reduce(0, 80, lambda rows, _: rows) == 0
    assert [kept for kept in (79, 80, 89) if store.reducible(kept)] == [79]
    store.merge(partials(["another"]))
    store.absorb()
    assert [kept for kept in (79, 80, 90, 91) if store.reducible(kept)] == [79, 80, 90]


def test_window_store_reduced_window_is_written_whole_and_replaces_what_was_written() -> None:
    store, log = WindowStore([COUNT], windows=tumbling(1000), retention_ms=0, updates=False), Log()
    write(log, flush(store, ["a", "b", "c"]))
    store.reduce(0, 2, first_rows)
    write(log, chunks_of(store.flush(None, 0)))
    assert restored_counts(log) == {"a": 1, "b": 1}
    store.reduce(0, 1, first_rows)
    write(log, flush(store, ["a", "d"]))
    assert restored_counts(log) == {"a": 2, "d": 1}
    assert flush(store, []) == []


def test_size_of_a_store_includes_its_binary_partials() -> None:
    small, large = (WindowStore(DIGITS.columns, windows=tumbling(1000), retention_ms=0, updates=True) for _ in range(2))
    for store, members in ((small, 1), (large, 201)):
        store.merge(one_set_per_key(members))
    assert large.nbytes - small.nbytes == 100 * 200
    for store in (small, large):
        store.absorb()
    assert large.nbytes - small.nbytes == 2 * 100 * 200  # rows and changes
    for store in (small, large):
        list(store.flush(None, 0))
    assert large.nbytes - small.nbytes == 100 * 200
    large.merge(one_set_per_key(251))
    list(large.flush(None, 0))
    assert large.nbytes - small.nbytes == 100 * 250
    list(large.flush(1000, 0))
    assert large.nbytes == 0


def test_pending_partials_of_many_bytes_are_merged_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_store, "PENDING_BYTES", 30_000)
    store = WindowStore(DIGITS.columns, windows=tumbling(1000), retention_ms=0, updates=True)
    store.merge(one_set_per_key(200))
    assert len(store) == 0
    store.merge(one_set_per_key(200))
    assert len(store) == 100


def test_portions_of_large_partials_have_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PORTION_BYTES", 2_000)
    store = WindowStore(DIGITS.columns, windows=tumbling(1000), retention_ms=0, updates=True)
    store.merge(one_set_per_key(200))
    parts = list(store.flush(None, 0))
    assert max(len(part.keys) for part in parts if isinstance(part, Emission)) < 10
    assert max(part.table.num_rows for part in parts if isinstance(part, Chunk) and part.table is not None) < 10
