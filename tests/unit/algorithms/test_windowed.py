"""Chunks of windows are of bounded size, whatever the windows hold, and a crash between two of them loses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms import sized, windowed
from skewless.algorithms.aggregates.base import COUNT
from skewless.algorithms.windowed import MOST_CHUNKS, Chunk, Emission, Windows
from skewless.records import read_table, write_table

Log = dict[int, pa.Table]
"""Chunks of the only window by number, as the changelog has them."""


def windows(log: Mapping[int, pa.Table] | None = None) -> Windows:
    made = Windows([COUNT], size_ms=1000, keep_ms=1000, updates=True)
    if log:
        made.restore(0, log)
    return made


def flush(made: Windows, keys: Iterable[str]) -> list[Chunk]:
    names = pa.array(keys, pa.string())
    ones = np.ones(len(names), dtype=np.int64)
    made.merge(pa.table({"pane": 0 * ones, "key": names, "count": ones}))
    return chunks_of(made.flush(None))


def chunks_of(parts: Iterable[Chunk | Emission]) -> list[Chunk]:
    return [part for part in parts if isinstance(part, Chunk)]


def write(log: Log, chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        if chunk.table is None:
            del log[chunk.number]
        else:
            assert chunk.number not in log
            log[chunk.number] = read_table(write_table(chunk.table))


def counts(log: Log) -> dict[str, int]:
    found: Counter[str] = Counter()
    for table in log.values():
        found.update(dict(zip(table["key"].to_pylist(), table["count"].to_pylist(), strict=True)))
    return dict(found)


def test_chunks_of_a_window_of_400_000_keys_are_bounded_when_it_comes_and_when_it_is_written_anew() -> None:
    keys = [f"key-{number:011d}" for number in range(400_000)]
    made, log = windows(), Log()
    for number in range(MOST_CHUNKS + 1):
        chunks = flush(made, keys if number == 0 else keys[:1])
        assert all(chunk.table is None or len(write_table(chunk.table)) < 2 * sized.RECORD_BYTES for chunk in chunks)
        write(log, chunks)
    assert min(log) < -1
    assert counts(log) == dict.fromkeys(keys, 1) | {keys[0]: MOST_CHUNKS + 1}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a chunk have two keys at most, and let two chunks be many."""
    monkeypatch.setattr(sized, "RECORD_BYTES", 60)
    monkeypatch.setattr(windowed, "MOST_CHUNKS", 2)


@pytest.mark.usefixtures("small")
def test_a_crash_between_any_two_chunks_loses_nothing() -> None:
    """Without transactions what was written before a crash stays: it may count twice, as everything then."""
    made, log = windows(), Log()
    wanted: Counter[str] = Counter()
    anew = 0
    for number in range(20):
        keys = [f"{key:03d}" for key in range(number % 7)] or ["last"]
        before = dict(wanted)
        wanted.update(keys)
        chunks = flush(made, keys)
        anew += any(chunk.table is None for chunk in chunks)
        for crash in range(len(chunks)):
            torn = dict(log)
            write(torn, chunks[:crash])
            found = counts(torn)
            assert {key: count for key, count in before.items() if found[key] < count} == {}
        write(log, chunks)
        assert counts(log) == dict(wanted)
    assert anew > 2


@pytest.mark.usefixtures("small")
def test_a_restored_window_goes_on_with_numbers_that_none_of_its_chunks_had() -> None:
    whole, log = windows(), Log()
    for number in range(20):
        keys = [f"{key:03d}" for key in range(number % 7)] or ["last"]
        restored = windows(dict(reversed(log.items())))
        again = flush(restored, keys)
        chunks = flush(whole, keys)
        assert [(chunk.number, chunk.table) for chunk in again] == [(chunk.number, chunk.table) for chunk in chunks]
        write(log, chunks)


@pytest.mark.usefixtures("small")
def test_a_window_of_many_chunks_is_not_written_anew_at_every_flush() -> None:
    made, written = windows(), 0
    keys = [f"{key:03d}" for key in range(100)]
    flush(made, keys)
    flush(made, ["000"])
    for _ in range(100):
        written += sum(chunk.table is not None for chunk in flush(made, ["000"]))
    assert written < 400


@pytest.mark.usefixtures("small")
def test_a_forgotten_window_takes_all_its_chunks_back() -> None:
    made, log = windows(), Log()
    for _ in range(4):
        write(log, flush(made, [f"{key:03d}" for key in range(9)]))
    write(log, chunks_of(made.flush(1000)))
    assert log != {}
    write(log, chunks_of(made.flush(2000)))
    assert log == {}
