"""Cardinality, hottest keys and Zipf fit, compared with exact counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.lab.inspection import key_profile
from skewless.lab.inspection.key_profile import EncodedKeys, KeyProfile
from skewless.lab.inspection.key_sample import KeySample
from skewless.lab.inspection.zipf_fit import fit


def profile_of(keys: list[str], capacity: int, batch: int = 1000) -> KeyProfile:
    profile = KeyProfile(capacity, capacity)
    for start in range(0, len(keys), batch):
        profile.add(EncodedKeys.of(keys[start : start + batch]))
    return profile


def zipf_keys(exponent: float, keys: int, tuples: int) -> list[str]:
    weights = 1 / np.arange(1, keys + 1) ** exponent
    return [f"k{rank}" for rank in np.random.default_rng(1).choice(keys, tuples, p=weights / weights.sum())]


@given(st.lists(st.text(max_size=3), min_size=1, max_size=300), st.integers(1, 100))
def test_key_profile_up_to_the_capacity_every_count_is_exact(keys: list[str], batch: int) -> None:
    found, exact = profile_of(keys, 1024, batch).to_json(), Counter(keys)
    assert (found["tuples"], found["cardinality"], found["cardinality_is_exact"]) == (len(keys), len(exact), True)
    assert [entry["count"] for entry in found["top"]] == [count for _, count in exact.most_common(20)]
    assert all(exact[entry["key"]] == entry["count"] for entry in found["top"])
    assert found["max_share"] == max(exact.values()) / len(keys)


def test_key_profile_beyond_the_capacity_hot_keys_and_cardinality_are_close() -> None:
    keys = zipf_keys(1.1, 50_000, 100_000)
    found, exact = profile_of(keys, 4096).to_json(), Counter(keys)
    assert not found["cardinality_is_exact"]
    assert found["cardinality"] == pytest.approx(len(exact), rel=0.06)
    top = exact.most_common(5)
    assert [entry["key"] for entry in found["top"][:5]] == [key for key, _ in top]
    assert found["max_share"] == pytest.approx(top[0][1] / len(keys), rel=0.01)


def test_key_profile_names_of_hot_keys_are_kept_and_others_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_profile, "MAX_NAMES", 100)
    keys = ["hot"] * 50 + zipf_keys(1.2, 2_000, 20_000) + [f"rare {number}" for number in range(1_000)]
    profile, exact = profile_of(keys, 4096, batch=30), Counter(keys)
    found = profile.to_json()
    assert len(profile._names) <= 130
    assert [entry["count"] for entry in found["top"]] == [count for _, count in exact.most_common(20)]
    assert all(exact[entry["key"]] == entry["count"] for entry in found["top"])


def test_key_profile_of_keys_that_occur_once_reports_one_tuple_per_key() -> None:
    found = profile_of([f"k{number}" for number in range(10_000)], 64).to_json()
    assert found["max_share"] == 1 / 10_000
    assert {entry["count"] for entry in found["top"]} == {1}


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.3])
def test_key_profile_beyond_the_capacity_zipf_exponent_is_close(exponent: float) -> None:
    keys = zipf_keys(exponent, 100_000, 500_000)
    found = profile_of(keys, 16_384, batch=20_000).to_json()
    assert not found["cardinality_is_exact"]
    exact = fit(np.array(sorted(Counter(keys).values(), reverse=True)))
    assert exact is not None
    assert found["zipf"]["exponent"] == pytest.approx(exact["exponent"], rel=0.02)
    assert found["zipf"]["ranks"] == pytest.approx(exact["ranks"], rel=0.05)


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), max_size=10))
def test_key_sample_indices_are_dense_and_dropped_keys_are_reported(batches: list[list[int]]) -> None:
    sample, rows = KeySample(16), np.zeros(16, dtype=np.int64)
    for batch in batches:
        hashes = np.array(batch, dtype=np.int64)
        kept = sample.add(hashes, np.ones(len(hashes), dtype=np.int64))
        if kept is not None:
            rows[: len(kept)] = rows[kept]
        indices = sample.indices_of(hashes)
        rows[indices[indices >= 0]] = hashes[indices >= 0]
        assert len(sample) <= 16
    everything = np.unique(np.array([value for batch in batches for value in batch], dtype=np.int64))
    indices = sample.indices_of(everything)
    sampled = everything[indices >= 0]
    assert sorted(indices[indices >= 0].tolist()) == list(range(len(sample)))
    assert (rows[indices[indices >= 0]] == sampled).all()
    assert sample.keys_per_sampled > 1 or sample.cardinality == len(everything)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
def test_fit_counts_that_follow_the_law_give_the_exponent(exponent: float) -> None:
    counts = (1e9 / np.arange(1, 1001) ** exponent).astype(np.int64)
    found = fit(counts)
    assert found is not None
    assert found["exponent"] == pytest.approx(exponent, abs=0.01)
    assert found["ranks"] == 1000


def test_fit_too_few_keys_give_none() -> None:
    assert fit(np.array([1000, 500, 9, 9, 9, 9, 9])) is None
