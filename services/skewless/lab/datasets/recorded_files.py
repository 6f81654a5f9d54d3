"""Reads recorded streams from files: tickers, posts, page views, page counts, sales and more.

A malformed line is sent unchanged, with the time of the previous line, or of the first line with one if it comes
before, as a header does. The splitter classifies it as invalid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from skewless.lab.datasets import data_files
from skewless.lab.datasets.base import START_MS, DatasetOptions, FixedRate, RecordBatch, Source
from skewless.lab.datasets.line_codec import DelimitedCodec, JsonCodec, LineCodec
from skewless.lab.datasets.posts import PostCodec

HOUR_MS = 3_600_000
WIKIPEDIA = "http://en.wikipedia.org/wiki/"

TICKS = JsonCodec("ticker", has_time=True)
POSTS = PostCodec()
PAGES = DelimitedCodec(("timestamp", "page"), "\t", key={"field": "page", "strip_prefix": WIKIPEDIA}, time="timestamp")
PAGE_COUNTS = DelimitedCodec(
    ("lang", "page", "views", "bytes"),
    " ",
    key={"field": "lang", "pattern": r"^[^.]+"},
    value="views",
)
CLICKSTREAM = DelimitedCodec(("prev", "curr", "type", "n"), "\t", key="curr", value="n")
SALES = DelimitedCodec(
    ("time", "category", "country", "quantity", "price"),
    ";",
    key="category",
    value="quantity",
    time="time",
)
EDITS = DelimitedCodec(("time", "channel", "added", "deleted"), ";", key="channel", value="added", time="time")
IMPRESSIONS = DelimitedCodec(("id", "time", "item", "position"), ";", key="item", time="time")
CLICKS = DelimitedCodec(("id", "time"), ";", key="id", time="time")

_HOUR_IN_NAME = re.compile(r"(\d{8})-(\d{2})\d{4}(?!\d)")


def reader(codec: LineCodec) -> Source:
    """Return a function that reads files with this codec. Lines without a time get a fixed rate over all files."""

    def read(options: DatasetOptions) -> Iterator[RecordBatch]:
        return _read(codec, options.input, FixedRate.of(options))

    return read


def page_counts(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Read WIKIPEDIA_PAGEVIEWS_BY_LANG: lines `lang page count bytes`, spread evenly over the hour in the file's name.

    If `event_rate` is set, or a name has no hour, event time advances at a fixed rate instead.
    """
    hours = [hour_of(path) for path in options.input]
    if options.event_rate is not None or None in hours:
        yield from reader(PAGE_COUNTS)(options)
        return
    for path, hour in zip(options.input, hours, strict=True):
        clock = FixedRate(max(1, data_files.count_lines(path)) * 1000 / HOUR_MS, hour or 0)
        yield from _read(PAGE_COUNTS, (path,), clock)


def hour_of(path: Path) -> int | None:
    """Return the hour (ms) in a name such as pagecounts-20160801-030000.gz, or None if the name has none."""
    match = _HOUR_IN_NAME.search(path.name)
    if match is None:
        return None
    try:
        hour = datetime.strptime("".join(match.groups()), "%Y%m%d%H").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(hour.timestamp() * 1000)


def _read(codec: LineCodec, paths: tuple[Path, ...], clock: FixedRate) -> Iterator[RecordBatch]:
    first = 0
    last_time: int | None = None
    for block in (block for path in paths for block in data_files.blocks(path)):
        values: list[bytes] = []
        times: list[int | None] = []
        # Lines are converted one by one, so that a malformed line does not affect its neighbours. This is cheap:
        # sending a record costs several times as much.
        for line, clock_time in zip(block, clock.times(first, len(block)).tolist(), strict=True):
            try:
                value, last_time = codec.convert(line, clock_time)
            except (ValueError, OverflowError, RecursionError, msgspec.DecodeError):  # RecursionError: JSON 3,000 deep
                value, last_time = line, last_time if codec.has_time else clock_time
            values.append(value)
            times.append(last_time)
        first += len(block)
        first_time = next((time for time in times if time is not None), START_MS)
        yield RecordBatch(values, np.array([first_time if time is None else time for time in times], np.int64))
