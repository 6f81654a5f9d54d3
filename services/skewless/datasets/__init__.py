"""The registry of datasets: what `skewless produce` sends, and what the demo and the tests read."""

from __future__ import annotations

from skewless.datasets import country, lines, recorded, zipf
from skewless.datasets.base import Chunk, Dataset, DatasetOptions, take
from skewless.datasets.detect import detect
from skewless.errors import ConfigurationError
from skewless.splitter.settings import SplitterSettings

__all__ = ["DATASETS", "Chunk", "Dataset", "DatasetOptions", "detect", "find_dataset", "splitter_settings", "take"]

GENERATED = 1_000_000

DATASETS: dict[str, Dataset] = {
    "country-skew": Dataset(
        "JSON; --skew % are one country, the rest uniform over 204",
        country.skewed,
        country.splitter_settings,
        records=GENERATED,
    ),
    "country-published": Dataset(
        "JSON; 80 % one country, 10 % a second, 10 % uniform over 30",
        country.published,
        country.splitter_settings,
        records=GENERATED,
    ),
    "zipf": Dataset(
        "JSON; --keys keys, Zipf with exponent --z, values 1..100",
        zipf.zipf,
        zipf.splitter_settings,
        records=GENERATED,
    ),
    "words": Dataset(
        "text; the source of Python's standard library, line by line", lines.words, lines.splitter_settings
    ),
    "ticker": Dataset(
        "files of {ticker, timestamp}, or `timestamp TAB ticker`",
        recorded.ticker,
        recorded.ticker_settings,
        reads_files=True,
    ),
    "pages": Dataset("files of `timestamp TAB page`", recorded.pages, recorded.pages_settings, reads_files=True),
    "pagecounts": Dataset(
        "files of `lang page count bytes`, as Wikimedia dumps them",
        recorded.pagecounts,
        recorded.pagecounts_settings,
        reads_files=True,
    ),
    "lines": Dataset("any text files, line by line", lines.lines, lines.splitter_settings, reads_files=True),
}


def find_dataset(name: str) -> Dataset:
    """Look a dataset up by name; a ConfigurationError lists the known names."""
    if name not in DATASETS:
        raise ConfigurationError(f"unknown dataset {name!r}: choose one of {', '.join(DATASETS)}")
    return DATASETS[name]


def splitter_settings(name: str) -> SplitterSettings:
    """Give the splitter settings that read the records of a dataset."""
    return find_dataset(name).splitter()
