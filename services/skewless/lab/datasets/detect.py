"""Detects the dataset of a file from its name and its first lines."""

from __future__ import annotations

import re
from pathlib import Path

from skewless.lab.datasets import data_files

SAMPLE_LINES = 20
_PAGE_COUNTS_FILE = re.compile(r"page(counts|views)-\d{8}-\d{6}")
_NUMBER = rb"-?\d+(?:\.\d+)?"
_INSTANT = rb"(?:\d{9,13}|\d{4}-\d\d-\d\d(?:[T ][\d:.]+(?:Z|[+-][\d:]+)?)?)"


def _json_object(**fields: bytes) -> re.Pattern[bytes]:
    """Return the pattern of a JSON object with these fields: name -> pattern of the beginning of its value."""
    lookaheads = b"".join(rb'(?=.*"%b"\s*:\s*%b)' % (name.encode(), value) for name, value in fields.items())
    return re.compile(rb"\{" + lookaheads + rb".*\}\s*")


_LINE_PATTERNS = [
    ("ticker", _json_object(ticker=b'"', timestamp=rb"\d")),
    ("election", _json_object(hashtags=rb"\[", timestamp=rb'[\d"]')),
    ("election", _json_object(hashtags=rb"\[", timestamp_ms=rb'[\d"]')),
    ("country", _json_object(country=b'"', timestamp=rb"\d")),
    ("pages", re.compile(rb"\d+\t[^\t]+")),
    ("clickstream", re.compile(rb"[^\t]+\t[^\t]+\t[^\t]+\t\d+\s*")),
    ("pagecounts", re.compile(rb"\S+ \S+ \d+ \d+\s*")),
    ("edits", re.compile(_INSTANT + rb";[^;]+;-?\d+;-?\d+\s*")),
    ("sales", re.compile(_INSTANT + rb";[^;]*;[^;]*;-?\d+;%b\s*" % _NUMBER)),
    ("impressions", re.compile(rb"[^;]+;%b;[^;]*;[^;]*" % _INSTANT)),
    ("clicks", re.compile(rb"[^;]+;%b\s*" % _INSTANT)),
]
_COUNTRY = re.compile(rb"[^\d\t;,{}]{2,60}")


def detect(path: Path) -> str:
    """Return the name of a file's dataset, or `lines` if no other dataset matches.

    Raises ConfigurationError when the file does not exist, is empty or cannot be read.
    """
    sample = data_files.first_lines(path, SAMPLE_LINES)
    if _PAGE_COUNTS_FILE.match(path.name):
        return "pagecounts"
    for name, pattern in _LINE_PATTERNS:
        if all(pattern.fullmatch(line) for line in sample):
            # Raw tickers and raw page views are both `timestamp TAB text`. Only the file name distinguishes them.
            return "ticker" if name == "pages" and "ticker" in path.name else name
    if path.name.startswith("country") and all(_COUNTRY.fullmatch(line) for line in sample):
        return "country"
    return "lines"
