"""Countries with one that is hot: the streams on which dynamic key grouping was measured, and recorded lists."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.datasets.base import CHUNK, GENERATED, Chunk, DatasetOptions, FixedRate, Form
from skewless.datasets.shapes import Columns
from skewless.splitter.settings import SplitterSettings

HOT = "Brazil"
SECOND = "Australia"
PUBLISHED_NAMES = 30

_Picks = Callable[[np.random.Generator, int], NDArray[np.int64]]
"""From a source of randomness and the number of the chunk's first record to indices of countries."""


@cache
def countries() -> tuple[str, ...]:
    """Give the 204 country names (ISO 3166 short names), sorted."""
    return tuple(files("skewless.datasets").joinpath("countries.txt").read_text("utf-8").splitlines())


def skewed(options: DatasetOptions) -> Iterator[Chunk]:
    """COUNTRY_SKEW: `skew` % of the records are the hot country, the rest uniform over all names, the hot one too."""
    return _stream(options, lambda random, _: _skewed(random, options.skew / 100))


def half_skewed(options: DatasetOptions) -> Iterator[Chunk]:
    """COUNTRY_HALF_SKEW: as `skewed` for the first half of the run's records, and uniform from there on: a drift."""
    half = (GENERATED if options.records is None else options.records) // 2

    def picks(random: np.random.Generator, first: int) -> NDArray[np.int64]:
        share = np.where(np.arange(first, first + CHUNK) < half, options.skew / 100, 0.0)
        return _skewed(random, share)

    return _stream(options, picks)


def published(options: DatasetOptions) -> Iterator[Chunk]:
    """Give the stream of the published figures: 80 % hot, 10 % a second, 10 % uniform over 30 names, both included."""
    hot, second = countries().index(HOT), countries().index(SECOND)

    def picks(random: np.random.Generator, _: int) -> NDArray[np.int64]:
        drawn = random.random(CHUNK)
        rest = random.integers(0, PUBLISHED_NAMES, CHUNK)
        return np.where(drawn < 0.8, hot, np.where(drawn < 0.9, second, rest))

    return _stream(options, picks)


class Countries:
    """See `Shape`: raw is the name alone, JSON has the time too."""

    timed = False

    def __init__(self) -> None:
        self._object = Columns({"timestamp": int, "country": str}, "\t", key="country", time="timestamp")

    def convert(self, line: bytes, form: Form, time: int) -> tuple[bytes, int]:
        """See `Shape.convert`."""
        if line.startswith(b"{"):
            value, time = self._object.convert(line, form, time)
            return (value.partition(b"\t")[2] if form == "raw" else value), time
        name = line.rstrip(b"\r")
        return (name if form == "raw" else self._object.write((time, name.decode()), form)), time

    def write(self, fields: Sequence[Any], form: Form) -> bytes:
        """See `Shape.write`; the fields are time and country."""
        return str(fields[1]).encode() if form == "raw" else self._object.write(fields, form)

    def splitter(self, form: Form) -> SplitterSettings:
        """See `Shape.splitter`: each record counts one for its country."""
        return SplitterSettings(format="text") if form == "raw" else self._object.splitter(form)


COUNTRIES = Countries()


def _skewed(random: np.random.Generator, share: float | NDArray[np.float64]) -> NDArray[np.int64]:
    names, hot = len(countries()), countries().index(HOT)
    return np.where(random.random(CHUNK) < share, hot, random.integers(0, names, CHUNK))


def _stream(options: DatasetOptions, picks: _Picks) -> Iterator[Chunk]:
    random, raw = np.random.default_rng(options.seed), options.form == "raw"
    clock = FixedRate.of(options)
    names = [name.encode() for name in countries()]
    heads = [
        json.dumps({"country": name}, ensure_ascii=False)[:-1].encode() + b', "timestamp": ' for name in countries()
    ]
    for first in count(0, CHUNK):
        times, picked = clock.times(first, CHUNK), picks(random, first).tolist()
        if raw:
            values = [names[pick] for pick in picked]
        else:
            values = [b"%b%d}" % (heads[pick], time) for pick, time in zip(picked, times.tolist(), strict=True)]
        yield Chunk(values, times)
