"""Generates synthetic replacements of the recorded datasets if no file is given: same formats, similar skew, seeded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.lab.datasets import recorded_files
from skewless.lab.datasets.base import BATCH_RECORDS, DatasetOptions, FixedRate, RecordBatch
from skewless.lab.datasets.country import countries
from skewless.lab.datasets.line_codec import LineCodec
from skewless.lab.datasets.zipf import cumulative

Rows = Callable[[np.random.Generator, list[int]], Iterable[Sequence[Any]]]
"""(random generator, times of the records in ms) -> fields of each record."""

LANGUAGES = ("en", "ja", "es", "de", "ru", "fr", "it", "zh", "pt", "pl", "nl", "ar", "tr", "fa", "id", "cs", "sv", "ko")
SITES = ("", "", ".m", ".b", ".d")
"""Suffixes of the language. Most views are of Wikipedia itself, on a desktop or on a mobile device."""
TAGS = ("ElectionNight", "ImVotingBecause", "Trump2016", "HillaryClinton", "News", "Breaking", "WhoWins?", "MAGA")
LINK_TYPES = ("link", "link", "external", "other")


def ticker(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate tickers of about 4,700 stocks, the hottest about 9 % of all."""
    name = _zipf_names("T{:04d}", 4_700, 0.98)
    return _stream(recorded_files.TICKS, options, lambda random, times: zip(times, name(random), strict=True))


def posts(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate posts with zero to three hashtags, about half of them about the election."""
    names = [*TAGS, *(f"Tag{number}" for number in range(2_700))]
    draw_ranks = _zipf_ranks(len(names), 1.1)

    def rows(random: np.random.Generator, times: list[int]) -> Iterable[Sequence[Any]]:
        lengths = random.integers(0, 4, BATCH_RECORDS).tolist()
        tags = zip(*([names[rank] for rank in draw_ranks(random)] for _ in range(3)), strict=True)
        return ((time, triple[:length]) for time, triple, length in zip(times, tags, lengths, strict=True))

    return _stream(recorded_files.POSTS, options, rows)


def pages(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate views of 100,000 pages, the hottest about 8 % of all, with the prefix of English Wikipedia."""
    name = _zipf_names(recorded_files.WIKIPEDIA + "Page_{}", 100_000, 1.0)
    return _stream(recorded_files.PAGES, options, lambda random, times: zip(times, name(random), strict=True))


def page_counts(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate views by language and page. More than a third of the lines have the hottest language."""
    language, page = _zipf_ranks(len(LANGUAGES), 1.3), _zipf_names("Page_{}", 100_000, 1.0)

    def rows(random: np.random.Generator, _: list[int]) -> Iterable[Sequence[Any]]:
        sites = random.integers(0, len(SITES), BATCH_RECORDS).tolist()
        languages = [LANGUAGES[rank] + SITES[site] for rank, site in zip(language(random), sites, strict=True)]
        views = _pareto_counts(random)
        return zip(languages, page(random), views.tolist(), (views * 20_000).tolist(), strict=True)

    return _stream(recorded_files.PAGE_COUNTS, options, rows)


def clickstream(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate pairs of pages with the number of clicks from the first to the second."""
    page = _zipf_names("Page_{}", 10_000, 0.9)

    def rows(random: np.random.Generator, _: list[int]) -> Iterable[Sequence[Any]]:
        types = [LINK_TYPES[index] for index in random.integers(0, len(LINK_TYPES), BATCH_RECORDS).tolist()]
        return zip(page(random), page(random), types, _pareto_counts(random).tolist(), strict=True)

    return _stream(recorded_files.CLICKSTREAM, options, rows)


def sales(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate sales of 3,600 categories to all countries. About 2 % are returns, with a negative quantity."""
    category, country, names = _zipf_names("C{:05d}", 3_600, 0.5), _zipf_ranks(len(countries()), 1.5), countries()

    def rows(random: np.random.Generator, times: list[int]) -> Iterable[Sequence[Any]]:
        quantities = np.where(random.random(BATCH_RECORDS) < 0.02, -1, 1) * random.integers(1, 25, BATCH_RECORDS)
        prices = (random.integers(25, 2_500, BATCH_RECORDS) / 100).tolist()
        buyers = [names[rank] for rank in country(random)]
        return zip(times, category(random), buyers, quantities.tolist(), prices, strict=True)

    return _stream(recorded_files.SALES, options, rows)


def edits(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate edits of the Wikipedias with the numbers of added and deleted characters."""
    language = _zipf_ranks(len(LANGUAGES), 1.0)

    def rows(random: np.random.Generator, times: list[int]) -> Iterable[Sequence[Any]]:
        channels = [f"#{LANGUAGES[rank]}.wikipedia" for rank in language(random)]
        return zip(times, channels, _pareto_counts(random).tolist(), _pareto_counts(random).tolist(), strict=True)

    return _stream(recorded_files.EDITS, options, rows)


def _stream(codec: LineCodec, options: DatasetOptions, rows: Rows) -> Iterator[RecordBatch]:
    random, clock = np.random.default_rng(options.seed), FixedRate.of(options)
    for first in count(0, BATCH_RECORDS):
        times = clock.times(first, BATCH_RECORDS)
        yield RecordBatch([codec.write(row) for row in rows(random, times.tolist())], times)


def _zipf_ranks(size: int, z: float) -> Callable[[np.random.Generator], list[int]]:
    """Return a function that draws a batch of ranks 0..size - 1 from a Zipf distribution with exponent z."""
    steps = cumulative(size, z)
    return lambda random: np.searchsorted(steps, random.random(BATCH_RECORDS), side="right").tolist()


def _zipf_names(template: str, size: int, z: float) -> Callable[[np.random.Generator], list[str]]:
    """Return a function that draws a batch of names `template.format(rank)`."""
    names, draw_ranks = [template.format(rank) for rank in range(size)], _zipf_ranks(size, z)
    return lambda random: [names[rank] for rank in draw_ranks(random)]


def _pareto_counts(random: np.random.Generator) -> NDArray[np.int64]:
    """Draw counts from 1 to a million. Most are small, few are in the thousands (Pareto)."""
    return np.minimum(random.pareto(1.2, BATCH_RECORDS), 1e6).astype(np.int64) + 1
