"""A matching pair of streams for joins: impressions of advertisements, and the clicks on them (synthetic)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from skewless.datasets.base import CHUNK, DEFAULT_EVENT_RATE, GENERATED, Chunk, DatasetOptions, FixedRate
from skewless.datasets.recorded import CLICKS, IMPRESSIONS
from skewless.datasets.zipf import cumulative

MATCHED = 9
"""Of ten impressions, how many have a click; exactly so within every ten that follow each other from the first on."""
CLICKS_GENERATED = GENERATED * MATCHED // 10
MEAN_DELAY_MS = 300.0
LONGEST_DELAY_MS = 5_000
ITEMS = 34


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A chunk's worth of both streams, by impression."""

    first: int
    times: NDArray[np.int64]
    items: list[str]
    positions: list[str]
    clicked: NDArray[np.bool_]
    delays: NDArray[np.int64]


def impressions(options: DatasetOptions) -> Iterator[Chunk]:
    """Left: `id;time;item;position`, in the order of time."""
    for pairs in _pairs(options):
        rows = zip(_ids(pairs), pairs.times.tolist(), pairs.items, pairs.positions, strict=True)
        yield Chunk([IMPRESSIONS.write(row, options.form or "raw") for row in rows], pairs.times)


def clicks(options: DatasetOptions) -> Iterator[Chunk]:
    """Right: `id;time`, each 0 to LONGEST_DELAY_MS after its impression and mostly within a second.

    In the order of time among the clicks on each CHUNK of impressions: where two such groups meet, time goes back.
    """
    for pairs in _pairs(options):
        times = pairs.times + pairs.delays
        order = np.argsort(times, kind="stable")
        chosen = order[pairs.clicked[order]]
        ids, instants = _ids(pairs), times.tolist()
        values = [CLICKS.write((ids[i], instants[i]), options.form or "raw") for i in chosen.tolist()]
        yield Chunk(values, times[chosen])


def _pairs(options: DatasetOptions) -> Iterator[_Pairs]:
    """Draw both streams from one seed. Event time does not follow `rate`, which may differ between the two."""
    random, steps = np.random.default_rng(options.seed), cumulative(ITEMS, 0.7)
    clock = FixedRate(options.event_rate or DEFAULT_EVENT_RATE)
    for first in count(0, CHUNK):
        yield _Pairs(
            first=first,
            times=clock.times(first, CHUNK),
            items=np.searchsorted(steps, random.random(CHUNK), side="right").astype(str).tolist(),
            positions=random.integers(1, 4, CHUNK).astype(str).tolist(),
            clicked=(random.random((CHUNK // 10, 10)).argsort(axis=1) < MATCHED).ravel(),
            delays=np.minimum(random.exponential(MEAN_DELAY_MS, CHUNK), LONGEST_DELAY_MS).astype(np.int64),
        )


def _ids(pairs: _Pairs) -> list[str]:
    return [f"ad-{number:09d}" for number in range(pairs.first, pairs.first + CHUNK)]
