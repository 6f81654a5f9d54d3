"""Countries with one that is hot: the streams on which dynamic key grouping was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from itertools import count

import numpy as np
from numpy.typing import NDArray

from skewless.datasets.base import CHUNK, Chunk, DatasetOptions, FixedRate
from skewless.splitter.settings import SplitterSettings

HOT = "Brazil"
SECOND = "Australia"
PUBLISHED_NAMES = 30

_Picks = Callable[[np.random.Generator], NDArray[np.int64]]


@cache
def countries() -> tuple[str, ...]:
    """Give the 204 country names (ISO 3166 short names), sorted."""
    return tuple(files("skewless.datasets").joinpath("countries.txt").read_text("utf-8").splitlines())


def skewed(options: DatasetOptions) -> Iterator[Chunk]:
    """COUNTRY_SKEW: `skew` % of the records are the hot country, the rest uniform over all names, the hot one too."""
    names, hot, share = len(countries()), countries().index(HOT), options.skew / 100

    def picks(random: np.random.Generator) -> NDArray[np.int64]:
        return np.where(random.random(CHUNK) < share, hot, random.integers(0, names, CHUNK))

    return _stream(options, picks)


def published(options: DatasetOptions) -> Iterator[Chunk]:
    """Give the stream of the published figures: 80 % hot, 10 % a second, 10 % uniform over 30 names, both included."""
    hot, second = countries().index(HOT), countries().index(SECOND)

    def picks(random: np.random.Generator) -> NDArray[np.int64]:
        drawn = random.random(CHUNK)
        rest = random.integers(0, PUBLISHED_NAMES, CHUNK)
        return np.where(drawn < 0.8, hot, np.where(drawn < 0.9, second, rest))

    return _stream(options, picks)


def splitter_settings() -> SplitterSettings:
    """Key: the country; each record counts one."""
    return SplitterSettings.model_validate(
        {"format": "json", "key": {"field": "country"}, "time": {"field": "timestamp"}}
    )


def _stream(options: DatasetOptions, picks: _Picks) -> Iterator[Chunk]:
    random = np.random.default_rng(options.seed)
    clock = FixedRate.of(options)
    heads = [
        json.dumps({"country": name}, ensure_ascii=False).encode().removesuffix(b"}") + b', "timestamp": '
        for name in countries()
    ]
    for first in count(0, CHUNK):
        times = clock.times(first, CHUNK)
        values = [
            b"%b%d}" % (heads[pick], time) for pick, time in zip(picks(random).tolist(), times.tolist(), strict=True)
        ]
        yield Chunk(values, times)
