from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.hashing import hash64, worker_of
from skewless.algorithms import murmur
from skewless.algorithms.hashing import PARTITION_SEED, hashes_of_keys, partition_of_keys, workers_of_keys
from skewless.algorithms.murmur import hashes_of_column


def test_hashes_of_keys_are_signed_longs() -> None:
    assert hashes_of_keys(["hello", ""], 0).tolist() == [0xCBD8A7B341BD9B02 - 2**64, 0]


def test_workers_of_keys_equal_those_of_each_key() -> None:
    keys = ["", "a", "Germany", "Côte d'Ivoire", "日本", "🎈" * 40]
    for workers in (1, 3, 100):
        expected = [worker_of(hash64(key, 13), workers) for key in keys]
        assert workers_of_keys(keys, 13, workers).tolist() == expected


def test_workers_of_keys_smallest_long_gets_a_valid_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """No short key is known to have this hash, so the test sets its digest."""
    digest = (2**63).to_bytes(8, "little") + bytes(8)
    monkeypatch.setattr("mmh3.hash_bytes", lambda *_: digest)
    assert workers_of_keys(["any"], 13, 100).tolist() == [2**63 % 100]


def test_workers_of_keys_without_keys_are_empty() -> None:
    assert workers_of_keys([], 13, 4).tolist() == []


def test_partition_of_keys_is_independent_of_the_workers() -> None:
    keys = [f"key {number}" for number in range(2_000)]
    home = workers_of_keys(keys, 13, 8)
    partitions = partition_of_keys(pa.array(keys), 8)
    assert set(partitions[home == 0].tolist()) == set(range(8))


@given(st.lists(st.text(max_size=70)), st.sampled_from([pa.string(), pa.large_string()]), st.integers(0, 3))
def test_hashes_of_column_of_any_keys_equal_those_of_each_key(keys: list[str], kind: pa.DataType, skipped: int) -> None:
    column = pa.array(keys, kind).slice(skipped)
    assert hashes_of_column(column, 29).tolist() == [hash64(key, 29) for key in keys[skipped:]]


@pytest.mark.parametrize("size", [*range(50), 65_536])
def test_hashes_of_column_of_keys_of_every_length_equal_those_of_each_key(size: int) -> None:
    keys = ["x", "y" * size, "", "ä" * 20, "z" * size]
    assert hashes_of_column(pa.array(keys), 29).tolist() == hashes_of_keys(keys, 29).tolist()


def test_hashes_of_column_chunked_or_split_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(murmur, "CHUNK_ROWS", 7)
    keys = [f"key {number}" for number in range(50)]
    column = pa.chunked_array([keys[:10], [], keys[10:11], keys[11:]], pa.string())
    assert hashes_of_column(column, 29).tolist() == hashes_of_keys(keys, 29).tolist()


def test_partition_of_keys_of_a_column_equals_that_of_its_strings() -> None:
    keys = [f"key {number}" for number in range(2_000)]
    expected = workers_of_keys(keys, PARTITION_SEED, 7)
    np.testing.assert_array_equal(partition_of_keys(pa.array(keys), 7), expected)
    assert partition_of_keys(pa.array([], pa.string()), 7).tolist() == []
