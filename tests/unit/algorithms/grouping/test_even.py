"""Properties of `even`: balance at nearly the minimum replication, on streams for which it was not tuned."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from skewless.algorithms.grouping import Grouping, GroupingOptions, KeyBatch, create

BATCH = 200_000
COUNTRIES = 204
HOT = 7


def assign(grouping: Grouping, keys: NDArray[np.int64]) -> NDArray[np.int64]:
    names = [f"key {number}" for number in range(keys.max() + 1)]
    codes = keys.astype(np.int32)
    times = np.zeros(len(keys), dtype=np.int64)
    cuts = [slice(at, at + BATCH) for at in range(0, len(keys), BATCH)]
    return np.concatenate([grouping.assign(KeyBatch(names, codes[cut], times[cut]), 0) for cut in cuts]).astype(
        np.int64
    )


def by_routers(keys: NDArray[np.int64], workers: int, routers: int) -> NDArray[np.int64]:
    chosen = np.empty(len(keys), dtype=np.int64)
    for router in range(routers):
        chosen[router::routers] = assign(create("even", workers), keys[router::routers])
    return chosen


def rate(chosen: NDArray[np.int64], workers: int) -> float:
    """Average load divided by the load of the most loaded worker: throughput relative to round robin."""
    return len(chosen) / workers / int(np.bincount(chosen, minlength=workers).max())


def replication(keys: NDArray[np.int64], chosen: NDArray[np.int64]) -> float:
    pairs = np.unique(keys * (chosen.max() + 1) + chosen)
    return len(pairs) / len(np.unique(keys))


def least_replication(keys: NDArray[np.int64], workers: int) -> float:
    """Minimum replication of a perfect balance."""
    counts = np.unique(keys, return_counts=True)[1]
    return float(np.ceil(counts / len(keys) * workers - 1e-9).sum() / len(counts))


def zipf(exponent: float, tuples: int, keys: int = 10_000) -> NDArray[np.int64]:
    shares = np.arange(1, keys + 1) ** -exponent
    return np.random.default_rng(5).choice(keys, size=tuples, p=shares / shares.sum())


def widths_of(grouping: Grouping) -> NDArray[np.integer[Any]]:
    widths = grouping.widths()
    assert widths is not None
    return widths.of_keys


def published(tuples: int) -> NDArray[np.int64]:
    """80 % one key, 10 % a second, 10 % uniform over 30 keys including both."""
    rng = np.random.default_rng(6)
    keys = rng.integers(0, 30, tuples)
    part = rng.random(tuples)
    keys[part < 0.9] = 1
    keys[part < 0.8] = 0
    return keys


def drifting(tuples: int) -> NDArray[np.int64]:
    """80 % one country and the rest uniform, then all countries uniform."""
    rng = np.random.default_rng(7)
    keys = rng.integers(0, COUNTRIES, tuples)
    keys[: tuples // 2][rng.random(tuples // 2) < 0.8] = HOT
    return keys


@pytest.mark.parametrize(("workers", "least"), [(5, 1.13), (10, 1.30), (20, 1.60), (50, 2.50), (100, 4.00)])
def test_even_published_stream_is_as_fast_as_round_robin_at_lower_replication(workers: int, least: float) -> None:
    keys = published(300_000)
    chosen = by_routers(keys, workers, 1)
    assert rate(chosen, workers) >= 0.99
    assert replication(keys, chosen) <= 1.5 * least


@pytest.mark.parametrize("workers", [5, 20, 100])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize(("routers", "expected", "factor"), [(1, 0.99, 1.25), (5, 0.98, 1.6)])
def test_even_zipf_streams_are_balanced_near_the_least_replication(
    exponent: float, workers: int, routers: int, expected: float, factor: float
) -> None:
    keys = zipf(exponent, 1_000_000)
    chosen = by_routers(keys, workers, routers)
    assert rate(chosen, workers) >= expected
    assert replication(keys, chosen) <= factor * least_replication(keys, workers)


def test_even_few_keys_of_equal_share_are_balanced_over_many_workers() -> None:
    keys = np.random.default_rng(8).integers(0, COUNTRIES, 1_000_000)
    chosen = by_routers(keys, 90, 1)
    assert rate(chosen, 90) >= 0.99
    assert replication(keys, chosen) <= 2.5


@pytest.mark.parametrize("workers", [10, 50, 100])
def test_even_after_a_drift_is_balanced_within_a_window(workers: int) -> None:
    keys, after = drifting(2_000_000), 1_060_000
    loads = np.bincount(by_routers(keys, workers, 1)[:after], minlength=workers)
    assert (loads.max() - after / workers) / after <= 1e-3


@pytest.mark.parametrize("workers", [10, 50, 100])
def test_even_after_a_drift_reduces_the_workers_of_the_old_hot_key(workers: int) -> None:
    keys, window = drifting(4_000_000), slice(-60_000, None)
    short = GroupingOptions.model_validate({"even": {"decay_tuples": 1000}})
    grouping, fresh = create("even", workers, short), create("even", workers, short)
    chosen, steady = assign(grouping, keys), assign(fresh, keys[2_000_000:])
    assert len(np.unique(chosen[:2_000_000][keys[:2_000_000] == HOT])) >= 0.8 * workers
    assert widths_of(grouping).max() <= max(5, workers / 4)
    assert replication(keys[window], chosen[window]) <= 1.1 * replication(keys[window], steady[window])


STRETCH = 100_000
"""Number of tuples of a segment. It is so short that an overloaded worker gets a queue that users notice."""


def load_by_stretch(chosen: NDArray[np.int64], workers: int) -> NDArray[np.float64]:
    """Load of the most loaded worker divided by the mean, in each segment of consecutive tuples."""
    stretches = np.split(chosen[: len(chosen) // STRETCH * STRETCH], len(chosen) // STRETCH)
    return np.array([np.bincount(each, minlength=workers).max() for each in stretches]) * workers / STRETCH


def equal(tuples: int) -> NDArray[np.int64]:
    return np.random.default_rng(12).integers(0, COUNTRIES, tuples)


STREAMS: dict[str, Callable[[int], NDArray[np.int64]]] = {
    "published": published,
    "zipf-0.9": partial(zipf, 0.9),
    "zipf-1.1": partial(zipf, 1.1),
    "zipf-1.7": partial(zipf, 1.7),
    "equal": equal,
}


@cache
def keys_of(stream: str, tuples: int) -> NDArray[np.int64]:
    """Return the keys of a stream, which several tests read."""
    return STREAMS[stream](tuples)


STEADY = {"zipf-0.9": (100, 1.1), "zipf-1.1": (100, 1.1), "equal": (90, 3.0)}
"""Number of workers and maximum replication, by stream."""
STEADY_TUPLES = 4_000_000


@pytest.mark.parametrize("stream", STEADY)
def test_even_steady_stream_is_balanced_in_every_segment(stream: str) -> None:
    keys = keys_of(stream, STEADY_TUPLES)
    workers, most_replication = STEADY[stream]
    chosen = by_routers(keys, workers, 1)
    assert load_by_stretch(chosen, workers)[5:].max() <= 1.06
    assert replication(keys, chosen) <= most_replication


@pytest.mark.parametrize("stream", STEADY)
def test_even_five_routers_are_balanced_in_every_segment(stream: str) -> None:
    workers, _ = STEADY[stream]
    assert load_by_stretch(by_routers(keys_of(stream, STEADY_TUPLES), workers, 5), workers)[5:].max() <= 1.08


@pytest.mark.parametrize("workers", [10, 40, 90])
@pytest.mark.parametrize("tuples", [200_000, 300_000])
@pytest.mark.parametrize(
    ("stream", "least"), [("published", 0.985), ("zipf-0.9", 0.985), ("zipf-1.7", 0.985), ("equal", 0.95)]
)
def test_even_short_stream_is_balanced_after_its_first_fifth(
    stream: str, least: float, tuples: int, workers: int
) -> None:
    chosen = by_routers(keys_of(stream, 300_000)[:tuples], workers, 1)
    assert rate(chosen[tuples // 5 :], workers) >= least


def test_even_after_a_burst_of_one_key_is_balanced_within_six_segments() -> None:
    keys = zipf(0.9, 3_000_000)
    keys[1_500_000:][np.random.default_rng(13).random(1_500_000) < 0.57] = 4242
    loads = load_by_stretch(by_routers(keys, 100, 1), 100)
    assert loads[21:].max() <= 1.06


def test_even_worker_idle_before_is_not_overloaded_afterwards() -> None:
    """The keys whose home is worker 0 pause. Then the worker must not get the missed tuples on top of its share."""
    workers, rng = 20, np.random.default_rng(14)
    keys = rng.integers(0, 10_000, 3_000_000)
    home = assign(create("even", workers), np.arange(10_000))
    keys[1_000_000:2_000_000] = rng.choice(np.flatnonzero(home != 0), 1_000_000)
    loads = load_by_stretch(by_routers(keys, workers, 1), workers)
    assert loads[20:].max() <= 1.06


def test_even_several_routers_give_a_key_the_same_workers() -> None:
    keys = published(100_000)
    one, other = create("even", 20), create("even", 20)
    second = [
        set(assign(router, part)[part == 1].tolist())
        for router, part in zip((one, other), np.split(keys, 2), strict=True)
    ]
    assert len(second[0] | second[1]) <= max(map(len, second)) + 1


def test_even_key_within_the_capacity_of_a_worker_stays_on_it() -> None:
    keys = np.random.default_rng(9).integers(0, 10_000, 20_000)
    assert replication(keys, by_routers(keys, 4, 1)) <= 1.01


def test_even_resized_spreads_a_hot_key_over_enough_workers_at_once() -> None:
    grouping = create("even", 4)
    assign(grouping, np.zeros(100_000, dtype=np.int64))
    grouping.resize(40)
    loads = np.bincount(assign(grouping, np.zeros(4_000, dtype=np.int64)), minlength=40)
    assert loads.max() <= 100 + 32


def test_even_any_number_of_keys_keeps_its_state_size() -> None:
    grouping = create("even", 50)
    fresh = len(msgspec.msgpack.encode(grouping.snapshot()))
    assign(grouping, np.random.default_rng(10).integers(0, 1_000_000, 200_000))
    assert fresh <= len(msgspec.msgpack.encode(grouping.snapshot())) <= fresh + 64 < 550_000


def test_even_snapshot_with_another_number_of_buckets_is_refused() -> None:
    small = GroupingOptions.model_validate({"even": {"hash_buckets": 256}})
    with pytest.raises(TypeError, match="32768 buckets, not 256"):
        create("even", 4, small).restore(create("even", 4).snapshot())


def test_even_restored_with_shorter_memory_narrows_sets_after_the_new_period() -> None:
    workers, cold = 10, np.arange(1, 2_000)
    options = [GroupingOptions.model_validate({"even": {"decay_tuples": tuples}}) for tuples in (1_000_000, 1_000)]
    long, short = (create("even", workers, each) for each in options)
    assign(long, np.zeros(10_000, dtype=np.int64))
    short.restore(long.snapshot())
    before = widths_of(short).max()
    for _ in range(5):
        assign(short, np.resize(cold, 10_000))
    # A set is reviewed at a tuple of its bucket.
    assign(short, np.zeros(1, dtype=np.int64))
    assert before == workers
    assert widths_of(short).max() < workers


def test_even_share_of_a_hot_key_is_exact_with_a_long_memory() -> None:
    """A float of 32 bits would not grow beyond 2^24 tuples."""
    grouping = create("even", 4, GroupingOptions.model_validate({"even": {"decay_tuples": 10_000_000}}))
    for _ in range(20):
        assign(grouping, np.zeros(1_000_000, dtype=np.int64))
    assert grouping.top_key_shares(1) == pytest.approx([1.0])


def test_even_large_weights_are_rescaled_without_effect() -> None:
    """With the shortest memory and one worker, weights reach their limit every 1,400 tuples."""
    short = GroupingOptions.model_validate({"even": {"decay_tuples": 100}})
    grouping = create("even", 2, short)
    chosen = assign(grouping, published(50_000))
    assert rate(chosen, 2) > 0.99
    weights = grouping.snapshot()["weights"]
    assert isinstance(weights, bytes)
    assert np.frombuffer(weights).max() < 1e9
