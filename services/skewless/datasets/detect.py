"""Which dataset a file is, by its name and its first lines."""

from __future__ import annotations

import re
from pathlib import Path

from skewless.datasets import files

SAMPLE = 20
_BY_NAME = re.compile(r"page(counts|views)-\d{8}-\d{6}")
_BY_LINE = {
    "ticker": re.compile(rb'\{(?=.*"ticker"\s*:)(?=.*"timestamp"\s*:\s*\d).*\}\s*'),
    "pages": re.compile(rb"\d+\t[^\t]+"),
    "pagecounts": re.compile(rb"\S+ \S+ \d+ \d+\s*"),
}


def detect(path: Path) -> str:
    """Name the dataset of a file: ticker, pages, pagecounts, else lines.

    Raises ConfigurationError when the file does not exist, is empty or cannot be read.
    """
    sample = files.first_lines(path, SAMPLE)
    if _BY_NAME.match(path.name):
        return "pagecounts"
    for name, form in _BY_LINE.items():
        if all(form.fullmatch(line) for line in sample):
            # `timestamp TAB x` is a ticker's raw form and a page view's: only the name can tell.
            return "ticker" if name == "pages" and "ticker" in path.name else name
    return "lines"
