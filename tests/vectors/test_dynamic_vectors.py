"""Dynamic key grouping, compared with a second, plain implementation of its specification: dictionaries and lists."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, islice
from math import sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from skewless.algorithms.grouping import GroupingOptions, KeyBatch, create
from skewless.algorithms.grouping.dynamic import DynamicKeyGrouping
from vectors.test_grouping_vectors import candidate

Rules = Literal["published", "reference"]
Stream = list[tuple[str, int]]
"""Keys and times in milliseconds."""

home = cache(candidate)


@dataclass
class Item:
    key: str
    count: int = 0
    workers: set[int] = field(default_factory=set)
    checked: int | None = None
    seen: int = 0


class PlainDynamicKey:
    """Plain implementation, one tuple at a time. `events` counts the decisions."""

    def __init__(self, workers: int, rules: Rules, distinct: int = 100) -> None:
        self.workers, self.rules = workers, rules
        self.sent = [0] * workers
        ideal = 100 / workers
        self.up, self.down = ideal + sqrt(ideal), ideal - sqrt(ideal)
        if rules == "reference":
            self.up, self.down = int(self.up), int(self.down)
        self.places = {"baby": int(distinct * 0.5), "teenage": int(distinct * 0.4), "old": int(distinct * 0.1)}
        self.spaces: dict[str, dict[str, Item]] = {"baby": {}, "teenage": {}, "old": {}}
        self.pools: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.start: int | None = None
        self.promotions = 0
        self.events: Counter[str] = Counter()

    def choose(self, key: str, time: int) -> int:
        if self.start is None:
            self.start = time
        while self.start + self.promotions * 15_000 <= time:
            self.promote(self.start + self.promotions * 15_000)
        worker = self.decide(key, time, self.start)
        self.sent[worker] += 1
        item = self.find(key) or self.spaces["baby"].setdefault(key, Item(key, seen=time))
        item.count += 1
        item.workers.add(worker)
        self.seen[key] = item.seen = max(time, self.seen.get(key, time))
        return worker

    def find(self, key: str) -> Item | None:
        return next((space[key] for space in self.spaces.values() if key in space), None)

    def load(self, worker: int) -> float:
        total = sum(self.sent)
        load = 100 * self.sent[worker] / total if total else 0
        return int(load) if self.rules == "reference" else load

    def pool(self, key: str) -> list[int]:
        return [(home(key, 13, self.workers) + step) % self.workers for step in range(self.pools.get(key, 2))]

    def decide(self, key: str, time: int, start: int) -> int:
        pool, item = self.pool(key), self.find(key)
        least = min(pool, key=self.load)
        if item is None or (item.checked is not None and time - item.checked <= 60_000):
            return least
        item.checked = time
        if self.may_grow(key, least, time - start):
            following = (pool[-1] + 1) % self.workers
            if self.load(following) < self.load(least):
                self.pools[key] = len(pool) + 1
                self.events["grown"] += 1
                return following
        elif len(pool) > 2 and self.unneeded(pool) >= 2:
            self.pools[key] = len(pool) - 1
            self.events["shrunk"] += 1
            return min(self.pool(key), key=self.load)
        return least

    def may_grow(self, key: str, least: int, passed: int) -> bool:
        narrow = self.pools.get(key, 2) < self.workers
        return passed > 15_000 and self.load(least) >= self.up and key in self.spaces["old"] and narrow

    def unneeded(self, pool: list[int]) -> int:
        limit = self.up if self.rules == "reference" else self.down
        return sum(self.load(worker) < limit for worker in pool)

    def promote(self, now: int) -> None:
        self.promotions += 1
        if self.rules == "published":
            self.evict(now - 3_600_000)
        self.spaces["baby"] = {item.key: item for item in ranked(self.spaces["baby"])[: self.places["baby"]]}
        self.move("baby", "teenage")
        if self.promotions % 4 == 0:
            self.move("teenage", "old")

    def evict(self, before: int) -> None:
        for name in ("old", "teenage"):
            for key in [key for key, item in self.spaces[name].items() if item.seen < before]:
                del self.spaces[name][key]
                self.events["evicted"] += 1
        for key in [key for key in self.pools if self.find(key) is None and self.seen[key] < before]:
            del self.pools[key]
            self.events["forgotten"] += 1

    def move(self, lower: str, upper: str) -> None:
        source, target, places = ranked(self.spaces[lower]), ranked(self.spaces[upper]), self.places[upper]
        steps = 0
        while source and len(target) < places:
            target.insert(0, source.pop(0))
            steps += 1
        while source and steps < places and source[0].count > target[-1].count:
            promoted, replaced = source.pop(0), target.pop()
            target.insert(0, promoted)
            source.append(replaced)
            steps += 1
            self.events["swapped"] += 1
        self.spaces[lower] = {item.key: item for item in source}
        self.spaces[upper] = {item.key: item for item in target}


def ranked(space: dict[str, Item]) -> list[Item]:
    return sorted(space.values(), key=lambda item: (-item.count, item.key.encode()))


def drawn(keys: list[str], weights: NDArray[np.floating[Any]], tuples: int, every_ms: int, seed: int = 1) -> Stream:
    codes = np.random.default_rng(seed).choice(len(keys), size=tuples, p=weights / weights.sum())
    return [(keys[code], 1_700_000_000_123 + row * every_ms) for row, code in enumerate(codes)]


def names(count: int) -> list[str]:
    return [f"key {number}" for number in range(count)]


def one_hot(count: int = 30) -> NDArray[np.float64]:
    weights = np.full(count, 0.1 / count)
    weights[:2] += 0.8, 0.1
    return weights


def country() -> Stream:
    return drawn(names(30), one_hot(), 10_000, 30)


def zipf() -> Stream:
    return drawn(names(2_000), np.arange(1, 2_001) ** -1.1, 10_000, 40)


def uniform() -> Stream:
    return drawn(names(204), np.ones(204), 8_000, 60)


def drift() -> Stream:
    """Pause one hot key, then another. The first one returns at the end."""
    hot, other = one_hot(), one_hot()[::-1].copy()
    rows = [drawn(names(30), weights, 4_000, 60, seed) for seed, weights in enumerate([hot, np.ones(30), other, hot])]
    return [(key, row * 60) for row, (key, _) in enumerate(row for part in rows for row in part)]


def takeover() -> Stream:
    """Make a key hot for three minutes, then another with other workers for the rest."""
    first, second = (drawn(names(2), np.array(weights), 6_000, 100) for weights in ((0.95, 0.05), (0.05, 0.95)))
    keys = [key for key, _ in first[:1_800] + second + second]
    return [(key, row * 100) for row, key in enumerate(keys)]


def ties() -> Stream:
    """All keys are equally frequent, in a changing order. Half of them are new each minute."""
    turns = [f"{turn // 8 * (number % 2)} {number}" for turn in range(60) for number in range(130)]
    return [(key, row * 70) for row, key in enumerate(turns)]


def odd_keys() -> Stream:
    keys = ["", "日本", "Åland", "🎈", "\uffee", "Z", "\x00", "é", "e\u0301", *map(chr, range(0x3B1, 0x3C9))]
    return drawn(keys, np.arange(1, len(keys) + 1) ** -1.5, 8_000, 50)


def out_of_order() -> Stream:
    late = np.random.default_rng(2).integers(0, 40_000, 10_000).tolist()
    return [(key, time - lateness) for (key, time), lateness in zip(country(), late, strict=True)]


def gaps() -> Stream:
    """Bursts of two minutes, then pauses of seconds, hours or days."""
    pauses = [7_000, 90_000, 3_540_000, 3_700_000, 2 * 86_400_000, 15_000, 60_000, 5_400_000]
    starts = accumulate((pause + 120_000 for pause in pauses), initial=-5_000_000)
    bursts = [
        drawn(names(60), one_hot(60)[:: (-1) ** turn].copy(), 1_200, 100, turn) for turn in range(len(pauses) + 1)
    ]
    times = (start + row * 100 for start in starts for row in range(1_200))
    return [(key, time) for (key, _), time in zip((row for burst in bursts for row in burst), times, strict=True)]


def at_the_same_time() -> Stream:
    return [(key, time // 15_000 * 15_000) for key, time in zipf()]


MADE: dict[str, Callable[[], Stream]] = {
    make.__name__: make
    for make in (country, zipf, uniform, drift, takeover, ties, odd_keys, out_of_order, gaps, at_the_same_time)
}


def lines(name: str) -> Iterator[str]:
    folder = os.environ.get("SKEWLESS_DATA")
    if not folder or not (Path(folder) / f"{name}.zst").exists():
        pytest.skip(f"set SKEWLESS_DATA to a folder with {name}.zst")
    with pa.input_stream(str(Path(folder) / f"{name}.zst")) as file:
        yield from file.read().decode().splitlines()


def twitter_ticker() -> Stream:
    """Compress fifteen months to eleven hours."""
    rows = map(json.loads, lines("twitter_ticker_2014-01_2015-03.jsonl"))
    return [(row["ticker"], row["timestamp"] // 1_000) for row in islice(rows, 60_000)]


def country_hotel() -> Stream:
    return [(key, row * 20) for row, key in enumerate(lines("country_hotel_resort.txt"))]


def country_retail() -> Stream:
    return [(key, row * 20) for row, key in enumerate(islice(lines("country_retail_2010-12_2011-06.txt"), 40_000))]


def wiki_edits() -> Stream:
    rows = (line.split("\t") for line in lines("wiki_edits_by_page_20150912_00-12h.tsv"))
    return [(page, int(time)) for time, page in rows]


def nasa() -> Stream:
    rows = (line.split("\t") for line in lines("http_nasa_by_page_19950701.tsv"))
    return [(page, int(time)) for time, page in rows]


REAL: dict[str, Callable[[], Stream]] = {
    make.__name__: make for make in (twitter_ticker, country_hotel, country_retail, wiki_edits, nasa)
}

every_rules = pytest.mark.parametrize("rules", ["published", "reference"])


def product(workers: int, rules: Rules) -> DynamicKeyGrouping:
    options = GroupingOptions.model_validate({"clock": "event", "dynamic_key": {"rules": rules}})
    grouping = create("dynamic_key", workers, options)
    assert isinstance(grouping, DynamicKeyGrouping)
    return grouping


def assign(grouping: DynamicKeyGrouping, stream: Stream, most: int = 997) -> list[int]:
    """Split into batches of `most` tuples, each with its own dictionary."""
    chosen: list[int] = []
    for start in range(0, len(stream), most):
        keys, times = zip(*stream[start : start + most], strict=True)
        index = {key: code for code, key in enumerate(dict.fromkeys(keys))}
        codes = np.array([index[key] for key in keys], dtype=np.int32)
        chosen += grouping.assign(KeyBatch(list(index), codes, np.array(times, dtype=np.int64)), 0).tolist()
    return chosen


def compare(stream: Stream, workers: int, rules: Rules) -> PlainDynamicKey:
    plain, grouping = PlainDynamicKey(workers, rules), product(workers, rules)
    expected = [plain.choose(key, time) for key, time in stream]
    assert assign(grouping, stream) == expected
    hottest = [(item.key, item.count, len(item.workers)) for item in ranked(plain.spaces["old"])]
    assert grouping.hot_keys(10) == hottest
    return plain


@every_rules
@pytest.mark.parametrize("workers", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("name", MADE)
def test_dynamic_key_on_synthetic_streams_decides_as_the_reference(name: str, workers: int, rules: Rules) -> None:
    compare(MADE[name](), workers, rules)


@every_rules
@pytest.mark.parametrize("workers", [5, 40])
@pytest.mark.parametrize("name", REAL)
def test_dynamic_key_on_recorded_streams_decides_as_the_reference(name: str, workers: int, rules: Rules) -> None:
    compare(REAL[name](), workers, rules)


@every_rules
def test_dynamic_key_streams_of_the_vectors_cover_growth_shrinking_and_eviction(rules: Rules) -> None:
    events = compare(takeover(), 8, rules).events + compare(gaps(), 10, rules).events
    expected = {"grown", "shrunk", "swapped"} | ({"evicted", "forgotten"} if rules == "published" else set())
    assert set(events) == expected


def test_dynamic_key_published_and_reference_rules_decide_differently() -> None:
    assert assign(product(10, "published"), drift()) != assign(product(10, "reference"), drift())
