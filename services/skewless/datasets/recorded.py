"""Recorded streams whose lines, or file names, carry the time: tickers, page views, hourly page counts.

Lines that are malformed are passed on as they are, at the time of the line before: judging them is the splitter's job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from skewless.datasets import files
from skewless.datasets.base import START_MS, Chunk, DatasetOptions, FixedRate
from skewless.datasets.lines import lines
from skewless.splitter.fields import LAST_INSTANT
from skewless.splitter.settings import SplitterSettings

SECONDS_BELOW = 100_000_000_000
"""Smaller numbers are seconds (up to the year 5138), larger ones milliseconds (from 1973 on)."""
HOUR_MS = 3_600_000

_Read = Callable[[bytes], tuple[bytes, int]]
_HOUR_IN_NAME = re.compile(r"(\d{8})-(\d{2})\d{4}(?!\d)")


class Tick(msgspec.Struct):
    """One mention of a stock: `timestamp` in ms since the epoch."""

    ticker: str
    timestamp: int


_decode_tick = msgspec.json.Decoder(Tick).decode
_encode_tick = msgspec.json.Encoder().encode


def ticker(options: DatasetOptions) -> Iterator[Chunk]:
    """TWITTER_TICKER: JSON `{"ticker", "timestamp"}` in ms; from that or `timestamp TAB ticker`, in s or ms."""
    return _timed(options, _read_tick)


def pages(options: DatasetOptions) -> Iterator[Chunk]:
    """WIKIPEDIA_PAGEVIEWS: `timestamp TAB page` in ms, from lines of it in s or ms."""
    return _timed(options, _read_page)


def pagecounts(options: DatasetOptions) -> Iterator[Chunk]:
    """WIKIPEDIA_PAGEVIEWS_BY_LANG: lines `lang page count bytes`, spread evenly over the hour in their file's name.

    With `event_rate` set, or a name without an hour, event time is of that fixed rate instead.
    """
    hours = [hour_of(path) for path in options.input]
    if options.event_rate is not None or None in hours:
        return lines(options)
    return chain.from_iterable(_hour(path, hour or 0) for path, hour in zip(options.input, hours, strict=True))


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


def ticker_settings() -> SplitterSettings:
    """Key: the ticker; each record counts one."""
    return SplitterSettings.model_validate(
        {"format": "json", "key": {"field": "ticker"}, "time": {"field": "timestamp"}}
    )


def pages_settings() -> SplitterSettings:
    """Key: the page, without the prefix that all of English Wikipedia has; each record counts one."""
    return SplitterSettings.model_validate(
        {
            "format": "tsv",
            "columns": ("timestamp", "page"),
            "key": {"field": "page", "strip_prefix": "http://en.wikipedia.org/wiki/"},
            "time": {"field": "timestamp"},
        }
    )


def pagecounts_settings() -> SplitterSettings:
    """Key: the language, up to the first dot; value: the views. The time is the Kafka record's."""
    return SplitterSettings.model_validate(
        {
            "format": "csv",
            "separator": " ",
            "columns": ("lang", "page", "views", "bytes"),
            "key": {"field": "lang", "pattern": r"^[^.]+"},
            "value": {"field": "views"},
        }
    )


def _hour(path: Path, hour: int) -> Iterator[Chunk]:
    clock = FixedRate(max(1, files.count_lines(path)) * 1000 / HOUR_MS, hour)
    first = 0
    for block in files.blocks(path):
        yield Chunk(block, clock.times(first, len(block)))
        first += len(block)


def _timed(options: DatasetOptions, read: _Read) -> Iterator[Chunk]:
    last = START_MS
    for block in chain.from_iterable(map(files.blocks, options.input)):
        values, times = [], []
        # Line by line, so that a malformed one leaves its neighbours alone; sending costs several times as much.
        for line in block:
            try:
                value, last = read(line)
            except (ValueError, msgspec.DecodeError):
                value = line
            values.append(value)
            times.append(last)
        yield Chunk(values, np.array(times, np.int64))


def _read_tick(line: bytes) -> tuple[bytes, int]:
    if line.startswith(b"{"):
        tick = _decode_tick(line)
        time = _milliseconds(tick.timestamp)
        return (line, time) if time == tick.timestamp else (_encode_tick(Tick(tick.ticker, time)), time)
    number, name = line.rstrip(b"\r").split(b"\t")
    time = _milliseconds(int(number))
    return _encode_tick(Tick(name.decode(), time)), time


def _read_page(line: bytes) -> tuple[bytes, int]:
    number, page = line.split(b"\t", 1)
    time = _milliseconds(int(number))
    return (line if time == int(number) else b"%d\t%b" % (time, page)), time


def _milliseconds(number: int) -> int:
    time = number * 1000 if number < SECONDS_BELOW else number
    if not 0 <= time <= LAST_INSTANT:
        raise ValueError
    return time
