"""Country datasets with one hot country: the streams of the published evaluation of dynamic key grouping, and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from itertools import count

import numpy as np
from numpy.typing import NDArray

from skewless.lab.datasets.base import (
    BATCH_RECORDS,
    GENERATED_RECORDS,
    DatasetOptions,
    FixedRate,
    RecordBatch,
)
from skewless.lab.datasets.line_codec import JsonCodec

HOT = "Brazil"
SECOND = "Australia"
PUBLISHED_NAMES = 30

_DrawCountries = Callable[[np.random.Generator, int], NDArray[np.int64]]
"""(random generator, index of the batch's first record) -> indices of countries, one per record of the batch."""


@cache
def countries() -> tuple[str, ...]:
    """Return the 204 country names (ISO 3166 short names), sorted."""
    return tuple(files("skewless.lab.datasets").joinpath("countries.txt").read_text("utf-8").splitlines())


def skewed(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate COUNTRY_SKEW: `skew` % hot country, the rest uniform over all names including the hot one."""
    return _stream(options, lambda random, _: _draw_skewed(random, options.skew / 100))


def half_skewed(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate COUNTRY_HALF_SKEW, a drift: like `skewed` in the first half of the run's records, then uniform."""
    half = (GENERATED_RECORDS if options.records is None else options.records) // 2

    def draw(random: np.random.Generator, first: int) -> NDArray[np.int64]:
        share = np.where(np.arange(first, first + BATCH_RECORDS) < half, options.skew / 100, 0.0)
        return _draw_skewed(random, share)

    return _stream(options, draw)


def published(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate the published stream: 80 % hot, 10 % a second country, 10 % uniform over 30 names including both."""
    hot, second = countries().index(HOT), countries().index(SECOND)

    def draw(random: np.random.Generator, _: int) -> NDArray[np.int64]:
        drawn = random.random(BATCH_RECORDS)
        others = random.integers(0, PUBLISHED_NAMES, BATCH_RECORDS)
        return np.where(drawn < 0.8, hot, np.where(drawn < 0.9, second, others))

    return _stream(options, draw)


COUNTRIES = JsonCodec("country", has_time=False)


def _draw_skewed(random: np.random.Generator, share: float | NDArray[np.float64]) -> NDArray[np.int64]:
    names, hot = len(countries()), countries().index(HOT)
    return np.where(random.random(BATCH_RECORDS) < share, hot, random.integers(0, names, BATCH_RECORDS))


def _stream(options: DatasetOptions, draw: _DrawCountries) -> Iterator[RecordBatch]:
    random, clock = np.random.default_rng(options.seed), FixedRate.of(options)
    prefixes = [
        json.dumps({"country": name}, ensure_ascii=False)[:-1].encode() + b', "timestamp": ' for name in countries()
    ]
    for first in count(0, BATCH_RECORDS):
        times, drawn = clock.times(first, BATCH_RECORDS), draw(random, first).tolist()
        values = [b"%b%d}" % (prefixes[country], time) for country, time in zip(drawn, times.tolist(), strict=True)]
        yield RecordBatch(values, times)
