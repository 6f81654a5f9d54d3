"""Country datasets with one hot country: the streams of the published evaluation of dynamic key grouping, and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.lab.datasets.base import (
    BATCH_RECORDS,
    GENERATED_RECORDS,
    DatasetOptions,
    Encoding,
    FixedRate,
    RecordBatch,
)
from skewless.lab.datasets.line_codec import DelimitedCodec
from skewless.stages.splitter.settings import SplitterSettings

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


class CountryCodec:
    """See `LineCodec`. A raw record is only the name, a JSON record also has the time."""

    has_time = False

    def __init__(self) -> None:
        self._with_time = DelimitedCodec({"timestamp": int, "country": str}, "\t", key="country", time="timestamp")

    def convert(self, line: bytes, encoding: Encoding, time: int) -> tuple[bytes, int]:
        """See `LineCodec.convert`."""
        if line.startswith(b"{"):
            value, time = self._with_time.convert(line, encoding, time)
            return (value.partition(b"\t")[2] if encoding == "raw" else value), time
        name = line.rstrip(b"\r")
        return (name if encoding == "raw" else self._with_time.write((time, name.decode()), encoding)), time

    def write(self, fields: Sequence[Any], encoding: Encoding) -> bytes:
        """See `LineCodec.write`. The fields are time and country."""
        return str(fields[1]).encode() if encoding == "raw" else self._with_time.write(fields, encoding)

    def splitter(self, encoding: Encoding) -> SplitterSettings:
        """See `LineCodec.splitter`. Each record counts 1 for its country."""
        return SplitterSettings(format="text") if encoding == "raw" else self._with_time.splitter(encoding)


COUNTRIES = CountryCodec()


def _draw_skewed(random: np.random.Generator, share: float | NDArray[np.float64]) -> NDArray[np.int64]:
    names, hot = len(countries()), countries().index(HOT)
    return np.where(random.random(BATCH_RECORDS) < share, hot, random.integers(0, names, BATCH_RECORDS))


def _stream(options: DatasetOptions, draw: _DrawCountries) -> Iterator[RecordBatch]:
    random, raw = np.random.default_rng(options.seed), options.encoding == "raw"
    clock = FixedRate.of(options)
    names = [name.encode() for name in countries()]
    prefixes = [
        json.dumps({"country": name}, ensure_ascii=False)[:-1].encode() + b', "timestamp": ' for name in countries()
    ]
    for first in count(0, BATCH_RECORDS):
        times, drawn = clock.times(first, BATCH_RECORDS), draw(random, first).tolist()
        if raw:
            values = [names[country] for country in drawn]
        else:
            values = [b"%b%d}" % (prefixes[country], time) for country, time in zip(drawn, times.tolist(), strict=True)]
        yield RecordBatch(values, times)
