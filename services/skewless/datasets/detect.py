"""Which dataset a file is, by its name and its first lines."""

from __future__ import annotations

import re
from pathlib import Path

from skewless.datasets import files

SAMPLE = 20
_BY_NAME = re.compile(r"page(counts|views)-\d{8}-\d{6}")
_NUMBER = rb"-?\d+(?:\.\d+)?"
_INSTANT = rb"(?:\d{9,13}|\d{4}-\d\d-\d\d(?:[T ][\d:.]+(?:Z|[+-][\d:]+)?)?)"


def _object(**fields: bytes) -> re.Pattern[bytes]:
    """Match a JSON object that has these fields, whose values begin so."""
    ahead = b"".join(rb'(?=.*"%b"\s*:\s*%b)' % (name.encode(), begin) for name, begin in fields.items())
    return re.compile(rb"\{" + ahead + rb".*\}\s*")


_BY_LINE = [
    ("ticker", _object(ticker=b'"', timestamp=rb"\d")),
    ("election", _object(hashtags=rb"\[", timestamp=rb'[\d"]')),
    ("election", _object(hashtags=rb"\[", timestamp_ms=rb'[\d"]')),
    ("pages", _object(page=b'"', timestamp=rb"\d")),
    ("pagecounts", _object(lang=b'"', page=b'"', views=rb"\d", bytes=rb"\d")),
    ("clickstream", _object(prev=b'"', curr=b'"', n=rb"\d")),
    ("country", _object(country=b'"', timestamp=rb"\d")),
    ("sales", _object(time=rb'[\d"]', category=b'"', country=b'"', quantity=rb"[-\d]", price=rb"[-\d]")),
    ("edits", _object(time=rb'[\d"]', channel=b'"', added=rb"[-\d]", deleted=rb"[-\d]")),
    ("impressions", _object(id=b'"', time=rb'[\d"]', item=b'"', position=b'"')),
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
    """Name the dataset of a file, else `lines`.

    Raises ConfigurationError when the file does not exist, is empty or cannot be read.
    """
    sample = files.first_lines(path, SAMPLE)
    if _BY_NAME.match(path.name):
        return "pagecounts"
    for name, form in _BY_LINE:
        if all(form.fullmatch(line) for line in sample):
            # `timestamp TAB x` is a ticker's raw form and a page view's: only the name can tell.
            return "ticker" if name == "pages" and "ticker" in path.name else name
    if path.name.startswith("country") and all(_COUNTRY.fullmatch(line) for line in sample):
        return "country"
    return "lines"
