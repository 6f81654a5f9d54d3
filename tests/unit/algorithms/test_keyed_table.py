"""Tables by key, compared with a dictionary, with and without keys of the same hash."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms import keyed_table
from skewless.algorithms.aggregates.base import COUNT
from skewless.algorithms.keyed_table import Changes, KeyedTable
from skewless.errors import LimitError


def strings(keys: Sequence[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(keys, pa.string())])


def add(table: KeyedTable, keys: Sequence[str], count: int = 1) -> list[int]:
    rows = table.rows_of(strings(keys))
    table.merge(rows, {"count": np.full(len(keys), count)})
    return [int(row) for row in rows]


def counts(table: KeyedTable) -> dict[str, int]:
    keys = table.keys(np.arange(len(table))).to_pylist()
    return dict(zip(keys, table.data(slice(len(keys)))["count"].tolist(), strict=True))


@pytest.mark.parametrize("bits", [0, 3, 64])
def test_keyed_table_with_colliding_hashes_equals_a_dictionary(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    hashes_of = keyed_table.hashes_of
    monkeypatch.setattr(keyed_table, "hashes_of", lambda keys: hashes_of(keys) & (2**bits - 1 if bits < 64 else -1))
    table, expected = KeyedTable([COUNT]), dict[str, int]()
    rng = np.random.default_rng(1)
    for round_ in range(60):
        keys = [f"key {number}" for number in rng.permutation(400)[: round_ * 5].tolist()] + ["", "é", "日本"]
        for key in keys:
            expected[key] = expected.get(key, 0) + round_
        rows = add(table, keys, round_)
        assert [list(expected).index(key) for key in keys] == rows
        assert table.keys(np.array(rows)).to_pylist() == keys
    assert counts(table) == expected
    assert len(table) == len(expected)


def test_keyed_table_of_a_million_keys_uses_less_than_60_bytes_per_key() -> None:
    table = KeyedTable([COUNT, COUNT, COUNT])
    for first in range(0, 1_000_000, 50_000):
        table.rows_of(strings([f"key-{number:011d}" for number in range(first, first + 50_000)]))
    assert table.nbytes < 60 * len(table)


def test_keyed_table_exported_contains_its_own_keys_only() -> None:
    table = KeyedTable([COUNT])
    add(table, ["a" * 1000, "b"])
    keys = table.keys(np.arange(2))
    assert keys.buffers()[2].size == 1001


def test_keyed_table_keys_beyond_the_arrow_offsets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_table, "TEXT_BYTES", 10)
    table = KeyedTable([COUNT])
    add(table, ["12345", "67890"])
    with pytest.raises(LimitError, match=r"more than 10 bytes.*aggregator_partitions"):
        add(table, ["x"])


def test_keyed_changes_merged_by_row_are_returned_once() -> None:
    changes = Changes([COUNT])
    changes.merge(np.array([5, 2]), {"count": np.array([1, 1])}, 6)
    changes.merge(np.array([2, 100]), {"count": np.array([1, 1])}, 101)
    assert changes.unchanged(np.array([0, 2, 5, 100]), 101).tolist() == [True, False, False, False]
    rows, data = changes.take()
    assert (rows.tolist(), data["count"].tolist()) == ([5, 2, 100], [1, 2, 1])
    assert len(changes) == 0
    changes.merge(np.array([2]), {"count": np.array([7])}, 101)
    rows, data = changes.take()
    assert (rows.tolist(), data["count"].tolist()) == ([2], [7])


def test_hashes_of_keys_of_every_length_are_distinct_and_independent_of_their_neighbours() -> None:
    keys = ["", "\0", "\0\0", *("x" * length for length in range(1, 300)), *("é" * length for length in range(1, 99))]
    hashes = keyed_table.hashes_of(pa.array(keys)).tolist()
    assert len(set(hashes)) == len(keys)
    assert keyed_table.hashes_of(pa.array(["before", *keys]).slice(1)).tolist() == hashes
    assert [keyed_table.hashes_of(pa.array([key]))[0] for key in keys] == hashes
    assert keyed_table.hashes_of(pa.array([], pa.string())).tolist() == []


@pytest.mark.parametrize("tail", ["", "tail"])
def test_hashes_of_keys_that_differ_in_few_bytes_spread_over_the_slots(
    tail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that differ in the high bytes of two words: a sum of products would have 256 hashes.

    With 1 % of all secrets, they use less than 95 % of the slots that random hashes would use.
    """
    letters = [chr(code) for code in range(33, 127)]
    keys = ["-" * 7 + first + "-" * 7 + second + tail for first in letters for second in letters]
    slots = 1 << 14
    expected = slots * (1 - (1 - 1 / slots) ** len(keys))
    secrets = np.random.default_rng(1).integers(0, 2**64, (50, 3), dtype=np.uint64) | np.uint64(1)
    used = []
    for secret in secrets:
        monkeypatch.setattr(keyed_table, "SECRET", secret)
        hashes = keyed_table.hashes_of(pa.array(keys))
        assert len(np.unique(hashes)) == len(keys)
        used.append(len(np.unique(hashes & (slots - 1))))
    assert np.quantile(used, 0.04) > 0.95 * expected
