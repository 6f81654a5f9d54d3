"""Local aggregation: a buffer holds a bounded number of rows and bytes, and an adaptive one switches itself off."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from helpers.batches import FORMAT
from skewless.algorithms import local_buffer
from skewless.algorithms.aggregates import AGGREGATES, wire_columns_of
from skewless.algorithms.local_buffer import OFF_FLUSHES, PROBE_BATCHES, LocalBuffer, LocalRules
from skewless.algorithms.partials import merge_partials, to_partials

COLUMNS = wire_columns_of([AGGREGATES["sum"]])
PANE_MS = 10


def buffer_of(max_rows: int = 1000, *, adaptive: bool = False) -> LocalBuffer:
    return LocalBuffer(LocalRules(columns=COLUMNS, pane_ms=PANE_MS, max_rows=max_rows, adaptive=adaptive))


def tuples(keys: Sequence[str], time: int = 0) -> pa.RecordBatch:
    return FORMAT.from_rows([(key, 1, time) for key in keys])


def sorted_rows(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: (row["pane"], row["key"]))


def flush(buffer: LocalBuffer, keys: Sequence[str]) -> None:
    assert buffer.add(tuples(keys))
    buffer.take()


@pytest.mark.parametrize("max_rows", [1, 2, 5, 1000])
def test_local_buffer_any_bound_gives_the_rows_of_all_tuples(max_rows: int) -> None:
    batches = [tuples(["a", "b", "a"]), tuples(["b"], time=9), tuples(["a", "c"], time=10), tuples(["a"], time=5)]
    buffer, taken, held = buffer_of(max_rows), [], 0
    for batch in batches:
        assert buffer.add(batch)
        if buffer.is_full:
            flushed = buffer.take()
            taken.append(flushed.rows)
            held += flushed.tuples
    if len(buffer):
        flushed = buffer.take()
        taken.append(flushed.rows)
        held += flushed.tuples
    assert held == 7
    merged = merge_partials(taken, ("pane", "key"), COLUMNS)
    assert sorted_rows(merged) == sorted_rows(to_partials(batches, PANE_MS, COLUMNS))


def test_local_buffer_holds_at_most_as_many_tuples_and_rows_as_the_bound() -> None:
    buffer = buffer_of(max_rows=10)
    for number in range(100):
        buffer.add(tuples([f"key {number % 9}"] * 3))
        assert not buffer.is_full
        assert len(buffer) < 2 * 10
    buffer.add(tuples([f"other {number}" for number in range(10)]))
    assert buffer.is_full


def test_local_buffer_of_long_keys_is_full_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_buffer, "BUFFER_BYTES", 100_000)
    one_key, many_keys = buffer_of(), buffer_of()
    for number in range(200):
        one_key.add(tuples(["x" * 1000]))
        assert one_key._bytes() <= 100_000
        if not many_keys.is_full:
            many_keys.add(tuples([f"{number:01000d}"]))
    assert not one_key.is_full
    assert many_keys.is_full
    assert many_keys._bytes() <= 110_000
    assert many_keys.take().tuples < 110


def test_local_buffer_key_of_a_megabyte_is_reduced_to_one_row() -> None:
    buffer = buffer_of()
    for _ in range(200):
        assert buffer.add(tuples(["x" * 2**20]))
        assert buffer._bytes() <= local_buffer.BUFFER_BYTES
    assert [(row["count"], len(row["key"])) for row in buffer.take().rows.to_pylist()] == [(200, 2**20)]


def test_local_buffer_taken_while_empty_is_an_error() -> None:
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer_of().take()


def test_local_buffer_adaptive_is_off_after_four_flushes_in_a_row_that_shrink_nothing() -> None:
    buffer = buffer_of(adaptive=True)
    for _ in range(OFF_FLUSHES - 1):
        flush(buffer, ["a", "b"])
    flush(buffer, ["a", "a"])
    for _ in range(OFF_FLUSHES):
        assert buffer.active
        flush(buffer, ["a", "b"])
    assert not buffer.active
    assert not buffer.add(tuples(["a", "a"]))
    assert len(buffer) == 0


def test_local_buffer_not_adaptive_stays_on() -> None:
    buffer = buffer_of(adaptive=False)
    for _ in range(3 * OFF_FLUSHES):
        flush(buffer, ["a", "b"])
    assert buffer.active


@pytest.mark.parametrize(("keys", "is_on"), [("aab", False), ("aabab", True)])
def test_local_buffer_that_is_off_probes_every_64th_batch(keys: str, is_on: bool) -> None:  # noqa: FBT001 - a parameter
    buffer = buffer_of(adaptive=True)
    for _ in range(OFF_FLUSHES):
        flush(buffer, ["a", "b"])
    for _ in range(PROBE_BATCHES - 1):
        assert not buffer.add(tuples(["a"] * 10))
    assert buffer.add(tuples(list(keys))) == is_on
    assert buffer.active == is_on
    if is_on:
        assert buffer.take().tuples == len(keys)
