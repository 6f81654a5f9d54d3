from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from skewless.algorithms.grouping import GroupingOptions, KeyBatch, create
from skewless.algorithms.grouping.choices import candidates, min_choices
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.hashing import hashes_of_keys, workers_of_keys
from skewless.errors import ConfigurationError

KEYS = [f"key {number}" for number in range(500)]
CHOICES = pytest.mark.parametrize("name", ["d_choices", "w_choices"])


def stream(numbers: NDArray[np.int64]) -> KeyBatch:
    codes = numbers.astype(np.int32)
    return KeyBatch([f"key {number}" for number in range(codes.max() + 1)], codes, np.zeros(len(codes), dtype=np.int64))


def uniform(keys: int, tuples: int) -> KeyBatch:
    return stream(np.random.default_rng(3).integers(0, keys, tuples))


def skewed(tuples: int, keys: int = 1_000) -> KeyBatch:
    """Key 0 in every second tuple, the other keys in turn."""
    turns = np.arange(tuples)
    return stream(np.where(turns % 2 == 0, 0, 1 + turns // 2 % (keys - 1)))


def workers_per_key(batch: KeyBatch, chosen: NDArray[np.int32]) -> NDArray[np.int64]:
    pairs = np.unique(np.stack([batch.codes, chosen]), axis=1)
    return np.bincount(pairs[0])


@pytest.mark.parametrize("workers", [1, 2, 3, 10, 64])
def test_choice_candidates_are_distinct_and_start_with_the_worker_of_key_grouping(workers: int) -> None:
    drawn = candidates(hashes_of_keys(KEYS, HOME_SEED), workers, workers)
    assert (np.sort(drawn, axis=1) == np.arange(workers)).all()
    assert drawn[:, 0].tolist() == workers_of_keys(KEYS, 13, workers).tolist()


def test_choice_candidates_when_fewer_are_the_first_of_more() -> None:
    hashes = hashes_of_keys(KEYS, HOME_SEED)
    assert (candidates(hashes, 7, 50) == candidates(hashes, 50, 50)[:, :7]).all()


def test_choice_candidates_after_the_first_are_uniform() -> None:
    drawn = candidates(hashes_of_keys([f"key {number}" for number in range(20_000)], HOME_SEED), 3, 10)
    for column in drawn.T:
        assert np.bincount(column).min() > 1_800
        assert np.bincount(column).max() < 2_200


@pytest.mark.parametrize(
    ("shares", "workers", "expected"),
    [
        ([], 50, 2),
        ([], 1, 1),
        ([1.0], 1, 1),
        ([1.0], 2, 2),
        ([1.0], 50, 50),
        ([0.001], 3, 2),
        ([1 / 204] * 204, 90, 5),
    ],
)
def test_min_choices_of_shares_is_the_smallest_balanced_one(shares: list[float], workers: int, expected: int) -> None:
    assert min_choices(np.array(shares), workers, 1e-4) == expected


def test_min_choices_covers_the_share_of_the_hottest_key() -> None:
    for share in (0.1, 0.3, 0.6):
        assert share * 50 <= min_choices(np.array([share]), 50, 1e-4) <= 50


def test_min_choices_larger_allowed_imbalance_is_smaller() -> None:
    shares = np.array([0.3, 0.1, 0.05])
    widths = [min_choices(shares, 100, epsilon) for epsilon in (1e-6, 1e-4, 1e-2, 0.5)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > widths[-1]


@CHOICES
def test_choices_groupings_one_key_with_half_of_the_tuples_balance_the_loads(name: str) -> None:
    chosen = create(name, 20).assign(skewed(40_000), 0)
    assert np.bincount(chosen, minlength=20).max() < 2_010


@CHOICES
def test_choices_groupings_tail_keys_stay_on_two_workers(name: str) -> None:
    grouping, batch = create(name, 20), skewed(40_000)
    grouping.assign(skewed(1_000), 0)
    spread = workers_per_key(batch, grouping.assign(batch, 0))
    assert spread[1:].max() == 2
    assert spread[0] >= 10


def test_d_choices_for_the_same_balance_uses_fewer_workers_than_w_choices() -> None:
    batch = stream(np.arange(50_000) % 7 * (np.arange(50_000) % 3))
    spread = {
        name: workers_per_key(batch, create(name, 100).assign(batch, 0)).sum() for name in ("d_choices", "w_choices")
    }
    assert spread["d_choices"] < 0.8 * spread["w_choices"]


def test_w_choices_every_share_above_theta_uses_all_workers_for_all_keys() -> None:
    batch = uniform(204, 300_000)
    assert (workers_per_key(batch, create("w_choices", 90).assign(batch, 0)) == 90).all()


def test_d_choices_every_share_above_theta_balances_with_fewer_workers() -> None:
    batch = uniform(204, 100_000)
    chosen = create("d_choices", 90).assign(batch, 0)
    assert workers_per_key(batch, chosen).mean() < 10
    assert np.bincount(chosen).max() <= 100_000 / 90 + 10


@CHOICES
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_choices_groupings_few_workers_share_one_key_evenly(name: str, workers: int) -> None:
    chosen = create(name, workers).assign(stream(np.zeros(600, dtype=np.int64)), 0)
    assert np.bincount(chosen).tolist() == [600 // workers] * workers


@CHOICES
def test_choices_groupings_new_hot_key_with_full_counters_is_split(name: str) -> None:
    options = GroupingOptions.model_validate({"choices": {"sketch_size": 200}})
    grouping = create(name, 20, options)
    grouping.assign(stream(1 + np.arange(50_000) % 5_000), 0)
    chosen = grouping.assign(stream(np.zeros(50_000, dtype=np.int64)), 0)
    assert len(np.unique(chosen)) == 20


@CHOICES
def test_choices_groupings_small_batches_with_restores_decide_as_one_batch(name: str) -> None:
    options = GroupingOptions.model_validate({"choices": {"sketch_size": 200}})
    batch = skewed(20_000)
    whole = create(name, 20, options).assign(batch, 0)
    pieces: list[int] = []
    grouping = create(name, 20, options)
    for start in range(0, 20_000, 997):
        part = KeyBatch(batch.keys, batch.codes[start : start + 997], batch.times[start : start + 997])
        pieces += grouping.assign(part, 0).tolist()
        snapshot, grouping = grouping.snapshot(), create(name, 3, options)
        grouping.restore(snapshot)
    assert pieces == whole.tolist()


@CHOICES
def test_choices_groupings_resized_reset_loads_and_keep_hot_keys(name: str) -> None:
    grouping = create(name, 10)
    grouping.assign(skewed(10_000), 0)
    sketch = grouping.snapshot()["sketch"]
    grouping.resize(30)
    after = grouping.snapshot()
    assert after["sent"] == bytes(30 * 8)
    assert after["sketch"] == sketch
    chosen = grouping.assign(stream(np.zeros(60, dtype=np.int64)), 0)
    assert len(np.unique(chosen)) > 15


@CHOICES
def test_choices_groupings_sketch_too_small_for_the_workers_is_refused(name: str) -> None:
    options = GroupingOptions.model_validate({"choices": {"sketch_size": 100}})
    grouping = create(name, 19, options)
    for build in (lambda: create(name, 20, options), lambda: grouping.resize(20)):
        with pytest.raises(ConfigurationError, match=r"20 workers needs choices.sketch_size above .* = 100, not 100"):
            build()
    assert grouping.workers == 19


@CHOICES
@pytest.mark.parametrize("name_of_part", ["workers", "sent", "sketch"])
def test_choices_groupings_invalid_snapshot_is_refused(name: str, name_of_part: str) -> None:
    grouping = create(name, 3)
    with pytest.raises(TypeError, match="snapshot"):
        grouping.restore(grouping.snapshot() | {name_of_part: None})


def test_d_choices_snapshot_without_number_of_choices_is_refused() -> None:
    grouping = create("d_choices", 3)
    for part in ("choices", "choices_until"):
        with pytest.raises(TypeError, match="whole number"):
            grouping.restore(grouping.snapshot() | {part: None})
