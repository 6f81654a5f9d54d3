"""Real data sets of $SKEWLESS_DATA as streams of (key, time). The README in that folder describes their formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.lab.datasets.base import START_MS
from skewless.lab.datasets.data_files import blocks
from skewless.lab.datasets.recorded_files import HOUR_MS, hour_of
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

RATE = 1000
ELECTION = (
    *("clinton", "hillary", "trump", "imwithher", "maga", "pence", "kaine", "johnson", "stein"),
    *("vote", "voting", "poll", "election", "elecciones", "president", "debate"),
    *("democrat", "republican", "america", "us", "usa"),
)


@dataclass(frozen=True, slots=True)
class Real:
    """One stream: its files, their format, and whether a line represents as many tuples as its value."""

    files: str
    splitter: dict[str, Any]
    timed: bool = True
    """Whether lines have a time. Otherwise tuples follow each other at a fixed rate."""
    expanded: bool = False
    """Repeats each line n times, spread over its hour in a random order (seeded). This order is not in the data."""


def delimited(key: int, time: int | None = None, **more: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {"key": {"field": key}} | more
    return parts if time is None else parts | {"time": {"field": time} | more.get("time", {})}


_PAGECOUNTS = "pagecounts-*.txt.zst"
_TWO_HOURS = "pagecounts-*-1[01]0000.txt.zst"
"""Each view is a tuple, so two hours are enough. The hottest page changes between them."""
_BLANKS = {"format": {"name": "csv", "delimiter": " "}, "value": {"field": 2}}
_SEMICOLONS = {"name": "csv", "delimiter": ";"}
_TAGS = {"field": "entities.hashtags[].text", "lowercase": True, "drop_if_contains": ["?"]}
_RETAIL = {"format": _SEMICOLONS}
_LEAD_TIME = {"unit": "iso8601"}

REAL = {
    "page views, language, by line": Real(
        _PAGECOUNTS, {**_BLANKS, "key": {"field": 0, "pattern": "^[^.]+"}}, timed=False
    ),
    "page views, page, by line": Real(_PAGECOUNTS, {**_BLANKS, "key": {"field": 1}}, timed=False),
    "page views, language, by view": Real(
        _TWO_HOURS, {**_BLANKS, "key": {"field": 0, "pattern": "^[^.]+"}}, timed=False, expanded=True
    ),
    "page views, page, by view": Real(_TWO_HOURS, {**_BLANKS, "key": {"field": 1}}, timed=False, expanded=True),
    "wiki edits, page": Real("wiki_edits_by_page_*.tsv.zst", delimited(1, 0, format="tsv")),
    "wiki edits, channel": Real("wiki_edits_hour_category_*.csv.zst", delimited(1, 0, format=_SEMICOLONS)),
    "NASA requests, page": Real("http_nasa_by_page_*.tsv.zst", delimited(1, 0, format="tsv")),
    "clickstream, to, by line": Real("clickstream-*.tsv.zst", delimited(1, format="tsv"), timed=False),
    "clickstream, from, by line": Real("clickstream-*.tsv.zst", delimited(0, format="tsv"), timed=False),
    "Wikispeedia clicks, to": Real("wikispeedia_clicks_*.tsv.zst", delimited(1, format="tsv"), timed=False),
    "tickers": Real(
        "twitter_ticker_*.jsonl.zst", {"format": "json", "key": {"field": "ticker"}, "time": {"field": "timestamp"}}
    ),
    "election hashtags": Real(
        "twitter_election_*.jsonl.zst", {"format": "json", "key": _TAGS, "time": {"field": "timestamp_ms"}}
    ),
    "election hashtags, merged": Real(
        "twitter_election_*.jsonl.zst",
        {
            "format": "json",
            "key": _TAGS | {"rename_if_contains": {"ElectionDay": ELECTION}},
            "time": {"field": "timestamp_ms"},
        },
    ),
    "retail, country": Real("country_retail_*.txt.zst", {"format": "text"}, timed=False),
    "hotel guests, country": Real("country_hotel_*.txt.zst", {"format": "text"}, timed=False),
    "retail, category": Real(
        "retail_hour_category_*.csv.zst",
        {**_RETAIL, "key": {"field": 1}, "time": {"field": 0, "unit": "iso8601"}},
    ),
    "ad impressions, item": Real("ads_*_impressions.csv.zst", {**_RETAIL, **delimited(2, 1)}),
    "leads, landing page": Real(
        "leads_*_left.csv.zst", {**_RETAIL, "key": {"field": 2}, "time": {"field": 1, **_LEAD_TIME}}
    ),
}


def streams(folder: Path) -> Iterator[tuple[str, pa.DictionaryArray, NDArray[np.int64]]]:
    """Yield the name, keys and times of each stream. Streams without files are skipped."""
    for name, real in REAL.items():
        if files := sorted(folder.glob(real.files)):
            keys, times = read(real, files)
            yield name, keys, times


def read(real: Real, files: list[Path]) -> tuple[pa.DictionaryArray, NDArray[np.int64]]:
    random = np.random.default_rng(1)
    parts = [_file(real, path, random) for path in files]
    keys = pa.chunked_array([part for part, _ in parts]).unify_dictionaries().combine_chunks()
    times = np.concatenate([time for _, time in parts])
    untimed = not real.timed and not (real.expanded or hour_of(files[0]))
    return keys, START_MS + np.arange(len(keys)) * 1000 // RATE if untimed else times


def _file(real: Real, path: Path, random: np.random.Generator) -> tuple[pa.DictionaryArray, NDArray[np.int64]]:
    parser = RecordParser(ParsingSettings.model_validate(real.splitter))
    untimed = (RecordColumns.of_values(lines, np.zeros(len(lines), dtype=np.int64)) for lines in blocks(path))
    parsed = list(map(parser.parse, untimed))
    keys = pa.chunked_array([pa.array(part.keys, pa.string()).dictionary_encode() for part in parsed])
    keys = keys.unify_dictionaries().combine_chunks()
    times = np.concatenate([part.times[part.records] for part in parsed])
    if real.expanded:
        rows = random.permutation(
            np.repeat(np.arange(len(keys)), np.concatenate([part.values["value"].to_numpy() for part in parsed]))
        )
        keys = keys.take(pa.array(rows))
    if not real.timed:
        times = (hour_of(path) or 0) + np.arange(len(keys)) * HOUR_MS // max(1, len(keys))
    return keys, times
