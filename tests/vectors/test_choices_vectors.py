"""D_CHOICES, W_CHOICES and CONSISTENT, compared with slow, plain implementations, tuple by tuple."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Protocol

import numpy as np
import pytest

from helpers.hashing import hash64, worker_of
from skewless.algorithms.grouping import GroupingOptions, KeyBatch, create

MASK = 2**64 - 1
EPSILON = 1e-4


class Counts(Protocol):
    def add(self, key: str) -> int: ...

    def estimates(self) -> list[int]: ...


class ExactCounts:
    def __init__(self, size: int) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, key: str) -> int:
        self.counts[key] += 1
        return self.counts[key]

    def estimates(self) -> list[int]:
        return sorted(self.counts.values(), reverse=True)


class PlainSpaceSaving:
    """Keys and counts in ascending order. A counted key moves to the end of the keys with its count."""

    def __init__(self, size: int) -> None:
        self.rows: list[tuple[str | None, int]] = [(None, 0)] * size

    def add(self, key: str) -> int:
        keys, counts = [row[0] for row in self.rows], [row[1] for row in self.rows]
        place = keys.index(key) if key in keys else counts.count(counts[0]) - 1
        last = len(counts) - 1 - counts[::-1].index(counts[place])
        self.rows[place] = self.rows[last]
        self.rows[last] = (key, counts[place] + 1)
        return counts[place] + 1

    def estimates(self) -> list[int]:
        return [count for _, count in reversed(self.rows)]


def splitmix64(seed: int, turn: int) -> int:
    state = (seed + turn * 0x9E3779B97F4A7C15) & MASK
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK
    return state ^ state >> 31


def sequence(key: str, workers: int) -> list[int]:
    """All workers in the order of the grouping `key`."""
    left, seed, drawn = list(range(workers)), hash64(key, 13), []
    for turn in range(workers):
        place = worker_of(seed, workers) if turn == 0 else splitmix64(seed, turn) % (workers - turn)
        drawn.append(left[place])
        left[place] = left[0]
        left.pop(0)
    return drawn


def balances(shares: list[float], d: int, workers: int) -> bool:
    tail = 1 - sum(shares)
    for prefix in range(1, len(shares) + 1):
        b = 1 - ((workers - 1) / workers) ** (prefix * d)
        load = sum(shares[:prefix]) + b**d * sum(shares[prefix:]) + b**2 * tail
        if load > b + EPSILON:
            return False
    return True


def fewest(shares: list[float], workers: int) -> int:
    if not shares:
        return min(2, workers)
    start = max(2, ceil(shares[0] * workers))
    return next((d for d in range(start, workers) if balances(shares, d, workers)), workers)


def by_choices(name: str, keys: list[str], workers: int, counts: Counts) -> list[int]:
    sequences = {key: sequence(key, workers) for key in set(keys)}
    sent = [0] * workers
    chosen: list[int] = []
    d, again = 0, 0
    for before, key in enumerate(keys):
        if before == again:
            d = fewest([one / before for one in counts.estimates() if one * workers > 0.2 * before], workers)
            again = before + max(1, before // 64)
        hot = counts.add(key) * workers > 0.2 * (before + 1)
        width = (d if name == "d_choices" else workers) if hot else 2
        among = range(workers) if width >= workers and hot else sequences[key][:width]
        worker = min(among, key=lambda one: sent[one])
        sent[worker] += 1
        chosen.append(worker)
    return chosen


def by_ring(keys: list[str], workers: int) -> list[int]:
    ring = sorted(
        (hash64(f"worker {worker} point {point}", 13), worker) for worker in range(workers) for point in range(100)
    )
    sent = [0] * workers
    chosen: list[int] = []
    for total, key in enumerate(keys, start=1):
        place = hash64(key, 13)
        clockwise = [worker for at, worker in ring if at >= place] + [worker for at, worker in ring if at < place]
        worker = next(one for one in clockwise if sent[one] < ceil(1.25 * total / workers))
        sent[worker] += 1
        chosen.append(worker)
    return chosen


def zipf(exponent: float, tuples: int, keys: int = 300) -> list[str]:
    shares = 1 / np.arange(1, keys + 1) ** exponent
    drawn = np.random.default_rng(7).choice(keys, size=tuples, p=shares / shares.sum())
    return [f"key {number}" for number in drawn.tolist()]


def decide(name: str, keys: list[str], workers: int, size: int = 10_000) -> list[int]:
    distinct = sorted(set(keys))
    places = {key: place for place, key in enumerate(distinct)}
    codes = np.array([places[key] for key in keys], dtype=np.int32)
    grouping = create(name, workers, GroupingOptions.model_validate({"choices": {"sketch_size": size}}))
    chosen: list[int] = grouping.assign(KeyBatch(distinct, codes, np.zeros(len(keys), dtype=np.int64)), 0).tolist()
    return chosen


def test_splitmix64_generator_gives_the_published_numbers() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [splitmix64(1234567, turn) for turn in range(1, 5)] == published


@pytest.mark.parametrize("workers", [1, 2, 3, 50, 100])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("name", ["d_choices", "w_choices"])
def test_choices_groupings_with_exact_counts_decide_as_the_reference(name: str, exponent: float, workers: int) -> None:
    keys = zipf(exponent, 3_000)
    assert decide(name, keys, workers) == by_choices(name, keys, workers, ExactCounts(0))


@pytest.mark.parametrize(("workers", "size"), [(1, 6), (2, 11), (3, 20), (20, 120)])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("name", ["d_choices", "w_choices"])
def test_choices_groupings_with_sketch_decide_as_reference(name: str, exponent: float, workers: int, size: int) -> None:
    keys = zipf(exponent, 3_000)
    assert decide(name, keys, workers, size) == by_choices(name, keys, workers, PlainSpaceSaving(size))


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_consistent_grouping_over_zipf_streams_decides_as_the_reference_ring(exponent: float, workers: int) -> None:
    keys = zipf(exponent, 1_000)
    assert decide("consistent", keys, workers) == by_ring(keys, workers)
