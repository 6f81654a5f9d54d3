"""Synthetic stand-ins for the recorded datasets, where no file is given: seeded, of the same forms, skewed alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.datasets import recorded
from skewless.datasets.base import CHUNK, Chunk, DatasetOptions, FixedRate
from skewless.datasets.country import countries
from skewless.datasets.shapes import Shape
from skewless.datasets.zipf import cumulative

Rows = Callable[[np.random.Generator, list[int]], Iterable[Sequence[Any]]]
"""From a source of randomness and the records' times (ms) to the records' fields."""

LANGUAGES = ("en", "ja", "es", "de", "ru", "fr", "it", "zh", "pt", "pl", "nl", "ar", "tr", "fa", "id", "cs", "sv", "ko")
SITES = ("", "", ".m", ".b", ".d")
"""Behind a language: most views are of Wikipedia itself, on a desktop or not."""
TAGS = ("ElectionNight", "ImVotingBecause", "Trump2016", "HillaryClinton", "News", "Breaking", "WhoWins?", "MAGA")
WAYS = ("link", "link", "external", "other")


def ticker(options: DatasetOptions) -> Iterator[Chunk]:
    """Make tickers of about 4,700 stocks, the hottest about 9 % of all."""
    name = _zipf("T{:04d}", 4_700, 0.98)
    return _stream(recorded.TICKS, options, lambda random, times: zip(times, name(random), strict=True))


def posts(options: DatasetOptions) -> Iterator[Chunk]:
    """Make posts of no to three hashtags, about half of them of the election."""
    names = [*TAGS, *(f"Tag{number}" for number in range(2_700))]
    pick = _ranks(len(names), 1.1)

    def rows(random: np.random.Generator, times: list[int]) -> Iterable[Sequence[Any]]:
        lengths = random.integers(0, 4, CHUNK).tolist()
        tags = zip(*([names[rank] for rank in pick(random)] for _ in range(3)), strict=True)
        return ((time, three[:length]) for time, three, length in zip(times, tags, lengths, strict=True))

    return _stream(recorded.POSTS, options, rows)


def pages(options: DatasetOptions) -> Iterator[Chunk]:
    """Make views of 100,000 pages, the hottest about 8 % of all, with the prefix of English Wikipedia."""
    name = _zipf(recorded.WIKIPEDIA + "Page_{}", 100_000, 1.0)
    return _stream(recorded.PAGES, options, lambda random, times: zip(times, name(random), strict=True))


def page_counts(options: DatasetOptions) -> Iterator[Chunk]:
    """Make views by language and page; more than a third of the lines are of the hottest language."""
    language, page = _ranks(len(LANGUAGES), 1.3), _zipf("Page_{}", 100_000, 1.0)

    def rows(random: np.random.Generator, _: list[int]) -> Iterable[Sequence[Any]]:
        sites = random.integers(0, len(SITES), CHUNK).tolist()
        langs = [LANGUAGES[rank] + SITES[site] for rank, site in zip(language(random), sites, strict=True)]
        views = _many(random)
        return zip(langs, page(random), views.tolist(), (views * 20_000).tolist(), strict=True)

    return _stream(recorded.PAGE_COUNTS, options, rows)


def clickstream(options: DatasetOptions) -> Iterator[Chunk]:
    """Make pairs of pages with the number of clicks from the one to the other."""
    page = _zipf("Page_{}", 10_000, 0.9)

    def rows(random: np.random.Generator, _: list[int]) -> Iterable[Sequence[Any]]:
        ways = [WAYS[way] for way in random.integers(0, len(WAYS), CHUNK).tolist()]
        return zip(page(random), page(random), ways, _many(random).tolist(), strict=True)

    return _stream(recorded.CLICKSTREAM, options, rows)


def sales(options: DatasetOptions) -> Iterator[Chunk]:
    """Make sales of 3,600 categories to all countries; about 2 % are returns, of negative quantity."""
    category, country, names = _zipf("C{:05d}", 3_600, 0.5), _ranks(len(countries()), 1.5), countries()

    def rows(random: np.random.Generator, times: list[int]) -> Iterable[Sequence[Any]]:
        quantities = np.where(random.random(CHUNK) < 0.02, -1, 1) * random.integers(1, 25, CHUNK)
        prices = (random.integers(25, 2_500, CHUNK) / 100).tolist()
        where = [names[rank] for rank in country(random)]
        return zip(times, category(random), where, quantities.tolist(), prices, strict=True)

    return _stream(recorded.SALES, options, rows)


def edits(options: DatasetOptions) -> Iterator[Chunk]:
    """Make edits of the Wikipedias, with the characters added and deleted."""
    language = _ranks(len(LANGUAGES), 1.0)

    def rows(random: np.random.Generator, times: list[int]) -> Iterable[Sequence[Any]]:
        channels = [f"#{LANGUAGES[rank]}.wikipedia" for rank in language(random)]
        return zip(times, channels, _many(random).tolist(), _many(random).tolist(), strict=True)

    return _stream(recorded.EDITS, options, rows)


def _stream(shape: Shape, options: DatasetOptions, rows: Rows) -> Iterator[Chunk]:
    random, clock, form = np.random.default_rng(options.seed), FixedRate.of(options), options.form or "raw"
    for first in count(0, CHUNK):
        times = clock.times(first, CHUNK)
        yield Chunk([shape.write(row, form) for row in rows(random, times.tolist())], times)


def _ranks(number: int, z: float) -> Callable[[np.random.Generator], list[int]]:
    steps = cumulative(number, z)
    return lambda random: np.searchsorted(steps, random.random(CHUNK), side="right").tolist()


def _zipf(name: str, number: int, z: float) -> Callable[[np.random.Generator], list[str]]:
    names, pick = [name.format(at) for at in range(number)], _ranks(number, z)
    return lambda random: [names[rank] for rank in pick(random)]


def _many(random: np.random.Generator) -> NDArray[np.int64]:
    """Draw counts from 1 on that are mostly small, and seldom thousands."""
    return np.minimum(random.pareto(1.2, CHUNK), 1e6).astype(np.int64) + 1
