"""Two matching synthetic streams for joins: impressions of advertisements, and clicks on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.lab.datasets.base import (
    BATCH_RECORDS,
    DEFAULT_EVENT_RATE,
    GENERATED_RECORDS,
    DatasetOptions,
    Encoding,
    FixedRate,
    RecordBatch,
)
from skewless.lab.datasets.recorded_files import CLICKS, IMPRESSIONS
from skewless.lab.datasets.zipf import cumulative

CLICKS_OF_TEN = 9
"""Impressions with a click, exactly so in every ten consecutive impressions, counted from the first one."""
GENERATED_CLICKS = GENERATED_RECORDS * CLICKS_OF_TEN // 10
MEAN_DELAY_MS = 300.0
MAX_DELAY_MS = 5_000
ITEMS = 34


@dataclass(frozen=True, slots=True)
class _Pairs:
    """One batch of impressions with their clicks; all columns are by impression."""

    first: int
    """Index of the first impression in the stream."""
    times: NDArray[np.int64]
    items: list[str]
    positions: list[str]
    clicked: NDArray[np.bool_]
    delays: NDArray[np.int64]
    """Time (ms) from the impression to its click."""


def impressions(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate the left stream: `id;time;item;position`, ordered by time."""
    for pairs in _pairs(options):
        rows = zip(_ids(pairs), pairs.times.tolist(), pairs.items, pairs.positions, strict=True)
        yield RecordBatch([IMPRESSIONS.write(row, options.encoding or "raw") for row in rows], pairs.times)


def clicks(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate the right stream: `id;time`, 0 to MAX_DELAY_MS after the impression and mostly within a second.

    Clicks are ordered by time within each batch of impressions. Between two batches, time can decrease.
    """
    for pairs in _pairs(options):
        times = pairs.times + pairs.delays
        by_time = np.argsort(times, kind="stable")
        clicked = by_time[pairs.clicked[by_time]]
        ids, instants = _ids(pairs), times.tolist()
        values = [CLICKS.write((ids[row], instants[row]), options.encoding or "raw") for row in clicked.tolist()]
        yield RecordBatch(values, times[clicked])


def ids(values: list[bytes], encoding: Encoding) -> list[bytes]:
    """Return the id of each record of either stream. A record without an id has an empty one."""
    if encoding == "raw":
        return [value.partition(b";")[0] for value in values]
    return [str(msgspec.json.decode(value).get("id", "")).encode() for value in values]


def _pairs(options: DatasetOptions) -> Iterator[_Pairs]:
    """Draw both streams from one seed. Event time does not depend on `rate`, which may differ between the two."""
    random, steps = np.random.default_rng(options.seed), cumulative(ITEMS, 0.7)
    clock = FixedRate(options.event_rate or DEFAULT_EVENT_RATE)
    for first in count(0, BATCH_RECORDS):
        yield _Pairs(
            first=first,
            times=clock.times(first, BATCH_RECORDS),
            items=np.searchsorted(steps, random.random(BATCH_RECORDS), side="right").astype(str).tolist(),
            positions=random.integers(1, 4, BATCH_RECORDS).astype(str).tolist(),
            clicked=(random.random((BATCH_RECORDS // 10, 10)).argsort(axis=1) < CLICKS_OF_TEN).ravel(),
            delays=np.minimum(random.exponential(MEAN_DELAY_MS, BATCH_RECORDS), MAX_DELAY_MS).astype(np.int64),
        )


def _ids(pairs: _Pairs) -> list[str]:
    return [f"ad-{number:09d}" for number in range(pairs.first, pairs.first + BATCH_RECORDS)]
