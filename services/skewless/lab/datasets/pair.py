"""Two matching synthetic streams for joins: impressions of advertisements, and clicks on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from skewless.lab.datasets.base import (
    BATCH_RECORDS,
    DEFAULT_EVENT_RATE,
    GENERATED_RECORDS,
    DatasetOptions,
    FixedRate,
    RecordBatch,
)
from skewless.lab.datasets.recorded_files import CLICKS, IMPRESSIONS
from skewless.lab.datasets.zipf import cumulative

OPTIONS = frozenset({"matched", "delay_ms", "disorder_ms", "duplicates", "missing"})
"""Options of both streams. `matched` and `delay_ms` do not change the impressions, but equal options are one pair."""
GROUP = 10
"""Consecutive impressions of which a fixed number has a click: the next integer of the share, by accumulation."""
MAX_DELAYS = 16
"""Largest delay of a click, as a multiple of the mean delay."""
ITEMS = 34
END_MS = np.iinfo(np.int64).max
LEFT_SEED, RIGHT_SEED = 1, 2
"""Streams of random numbers of what happens to one side on its way. They do not change the pairs."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One batch of impressions with their clicks; all columns are by impression."""

    ids: list[str]
    times: NDArray[np.int64]
    items: list[str]
    positions: list[str]
    clicked: NDArray[np.bool_]
    delays: NDArray[np.int64]
    """Time (ms) from the impression to its click."""
    next_ms: int
    """Time of the first impression of the next batch. END_MS: there is none."""


def impressions(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate the left stream: `id;time;item;position`, of `options.records` impressions."""
    delivery = _Delivery(options, LEFT_SEED)
    for pairs in _pairs(options):
        rows = zip(pairs.ids, pairs.times.tolist(), pairs.items, pairs.positions, strict=True)
        yield from delivery.send([IMPRESSIONS.write(row) for row in rows], pairs.times, pairs.next_ms)


def clicks(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate the right stream: `id;time`, the clicks on `options.records` impressions."""
    delivery = _Delivery(options, RIGHT_SEED)
    for pairs in _pairs(options):
        clicked = np.flatnonzero(pairs.clicked)
        times = (pairs.times + pairs.delays)[clicked]
        ids = (pairs.ids[row] for row in clicked.tolist())
        values = [CLICKS.write(row) for row in zip(ids, times.tolist(), strict=True)]
        yield from delivery.send(values, times, pairs.next_ms)


def ids(values: list[bytes]) -> list[bytes]:
    """Return the id of each record of either stream."""
    return [value.partition(b";")[0] for value in values]


def _pairs(options: DatasetOptions) -> Iterator[_Pairs]:
    """Draw both streams from one seed. Event time does not depend on `rate`, which may differ between the two."""
    random, steps = np.random.default_rng(options.seed), cumulative(ITEMS, 0.7)
    clock = FixedRate(options.event_rate or DEFAULT_EVENT_RATE)
    total = GENERATED_RECORDS if options.records is None else options.records
    for first in count(0, BATCH_RECORDS):
        if first >= total:
            return
        times = clock.times(first, BATCH_RECORDS + 1)
        items = np.searchsorted(steps, random.random(BATCH_RECORDS), side="right").astype(str).tolist()
        positions = random.integers(1, 4, BATCH_RECORDS).astype(str).tolist()
        ranks = random.random((BATCH_RECORDS // GROUP, GROUP)).argsort(axis=1)
        delays = np.minimum(random.exponential(options.delay_ms, BATCH_RECORDS), MAX_DELAYS * options.delay_ms)
        end = min(BATCH_RECORDS, total - first)
        yield _Pairs(
            ids=[f"ad-{number:09d}" for number in range(first, first + end)],
            times=times[:end],
            items=items[:end],
            positions=positions[:end],
            clicked=(ranks < _clicks_of_groups(first, options.matched)[:, None]).ravel()[:end],
            delays=delays.astype(np.int64)[:end],
            next_ms=int(times[-1]) if first + BATCH_RECORDS < total else END_MS,
        )


def _clicks_of_groups(first: int, matched: float) -> NDArray[np.int64]:
    """Return the number of clicks of each group of a batch. The first n groups have round(n * GROUP * matched)."""
    ends = np.round(np.arange(first, first + BATCH_RECORDS + 1, GROUP) * matched).astype(np.int64)
    return ends[1:] - ends[:-1]


class _Delivery:
    """Way of one stream into its topic: it loses and repeats records, and delays each by a random time.

    A record is then older than one before it by at most `disorder_ms`.
    """

    def __init__(self, options: DatasetOptions, seed: int) -> None:
        self._options = options
        self._random = np.random.default_rng((options.seed, seed))
        self._values: list[bytes] = []
        self._times = np.empty(0, dtype=np.int64)
        self._arrivals = np.empty(0, dtype=np.int64)

    def send(self, values: list[bytes], times: NDArray[np.int64], next_ms: int) -> Iterator[RecordBatch]:
        """Yield the records that arrive before all later ones, in this order. No later record is before `next_ms`."""
        options, random, size = self._options, self._random, len(values)
        copies = (random.random(size) >= options.missing) * (1 + (random.random(size) < options.duplicates))
        rows = np.repeat(np.arange(size), copies)
        arrivals = times[rows] + random.integers(0, options.disorder_ms, len(rows), endpoint=True)
        values = self._values + [values[row] for row in rows.tolist()]
        times = np.concatenate((self._times, times[rows]))
        arrivals = np.concatenate((self._arrivals, arrivals))
        order = np.argsort(arrivals, kind="stable")
        ready, waiting = np.split(order, [np.searchsorted(arrivals[order], next_ms)])
        self._values = [values[row] for row in waiting.tolist()]
        self._times, self._arrivals = times[waiting], arrivals[waiting]
        if len(ready):
            yield RecordBatch([values[row] for row in ready.tolist()], times[ready])
