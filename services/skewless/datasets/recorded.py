"""Recorded streams from files, in either form of their shape: tickers, posts, page views, page counts, sales and more.

Lines that are malformed are passed on as they are, at the time of the line before: judging them is the splitter's job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from skewless.datasets import files
from skewless.datasets.base import START_MS, Chunk, DatasetOptions, FixedRate, Form, Source
from skewless.datasets.posts import Posts
from skewless.datasets.shapes import Columns, Shape

HOUR_MS = 3_600_000
WIKIPEDIA = "http://en.wikipedia.org/wiki/"

TICKS = Columns({"timestamp": int, "ticker": str}, "\t", key="ticker", time="timestamp")
POSTS = Posts()
PAGES = Columns(
    {"timestamp": int, "page": str}, "\t", key={"field": "page", "strip_prefix": WIKIPEDIA}, time="timestamp"
)
PAGE_COUNTS = Columns(
    {"lang": str, "page": str, "views": int, "bytes": int},
    " ",
    key={"field": "lang", "pattern": r"^[^.]+"},
    value="views",
)
CLICKSTREAM = Columns({"prev": str, "curr": str, "type": str, "n": int}, "\t", key="curr", value="n")
SALES = Columns(
    {"time": int, "category": str, "country": str, "quantity": int, "price": float},
    ";",
    key="category",
    value="quantity",
    time="time",
)
EDITS = Columns(
    {"time": int, "channel": str, "added": int, "deleted": int}, ";", key="channel", value="added", time="time"
)
IMPRESSIONS = Columns({"id": str, "time": int, "item": str, "position": str}, ";", key="item", time="time")
CLICKS = Columns({"id": str, "time": int}, ";", key="id", time="time")

_HOUR_IN_NAME = re.compile(r"(\d{8})-(\d{2})\d{4}(?!\d)")


def reader(shape: Shape) -> Source:
    """Make what reads files of a shape; lines without a time are at a fixed rate, over all files."""

    def read(options: DatasetOptions) -> Iterator[Chunk]:
        return _read(shape, options.input, options.form or "raw", FixedRate.of(options))

    return read


def page_counts(options: DatasetOptions) -> Iterator[Chunk]:
    """WIKIPEDIA_PAGEVIEWS_BY_LANG: lines `lang page count bytes`, spread evenly over the hour in their file's name.

    With `event_rate` set, or a name without an hour, event time is of that fixed rate instead.
    """
    hours = [hour_of(path) for path in options.input]
    if options.event_rate is not None or None in hours:
        yield from reader(PAGE_COUNTS)(options)
        return
    for path, hour in zip(options.input, hours, strict=True):
        clock = FixedRate(max(1, files.count_lines(path)) * 1000 / HOUR_MS, hour or 0)
        yield from _read(PAGE_COUNTS, (path,), options.form or "raw", clock)


def hour_of(path: Path) -> int | None:
    """Read the hour (ms) from a name such as pagecounts-20160801-030000.gz; None when there is none."""
    found = _HOUR_IN_NAME.search(path.name)
    if found is None:
        return None
    try:
        hour = datetime.strptime("".join(found.groups()), "%Y%m%d%H").replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(hour.timestamp() * 1000)


def _read(shape: Shape, paths: tuple[Path, ...], form: Form, clock: FixedRate) -> Iterator[Chunk]:
    first, last = 0, START_MS
    for block in (block for path in paths for block in files.blocks(path)):
        values, times = [], []
        # Line by line, so that a malformed one leaves its neighbours alone; sending costs several times as much.
        for line, due in zip(block, clock.times(first, len(block)).tolist(), strict=True):
            try:
                value, last = shape.convert(line, form, due)
            except (ValueError, OverflowError, RecursionError, msgspec.DecodeError):  # of JSON 3,000 deep
                value, last = line, last if shape.timed else due
            values.append(value)
            times.append(last)
        first += len(block)
        yield Chunk(values, np.array(times, np.int64))
