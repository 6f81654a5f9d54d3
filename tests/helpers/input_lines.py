"""Lines of pipelines' sources: those of real files in $SKEWLESS_DATA, or made-up ones of the same form."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

FOLDER = os.environ.get("SKEWLESS_DATA")
LINES = 6_000
PAGES = "http_nasa_by_page_19950701.tsv"
SALES = "retail_hour_category_2010-12_2011-06.csv"
FIRST_MS = 804_571_200_000
"""1995-07-01T04:00:00Z."""


def lines(name: str) -> Iterator[str]:
    """Yield the first lines of a file of real data, or lines of its form."""
    if FOLDER is None:
        yield from itertools.islice(MADE_UP[name](), LINES)
        return
    with pa.input_stream(str(Path(FOLDER) / f"{name}.zst"), compression="zstd") as file:
        text = io.TextIOWrapper(io.BufferedReader(file), encoding="utf-8")
        for line in itertools.islice(text, LINES):
            yield line.rstrip("\n")


def made_up_pages() -> Iterator[str]:
    random = np.random.default_rng(5)
    for number, page in enumerate(np.minimum(random.zipf(1.5, LINES), 900).tolist()):
        yield f"{FIRST_MS + number * 1_300}\t/page/{page}"


def made_up_sales() -> Iterator[str]:
    random = np.random.default_rng(6)
    columns = random.zipf(1.3, LINES) % 700, random.integers(0, 3, LINES), random.integers(-3, 20, LINES)
    for number, (category, country, quantity) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        sold = datetime.fromtimestamp(1_291_191_960 + number * 50, UTC).strftime("%Y-%m-%d %H:%M:%S")
        country_name = ("United Kingdom", "France", "Germany")[country]
        yield f"{sold};item '{category}';{country_name};{quantity};{(category * 37 % 1000) / 100:.2f}"


MADE_UP: dict[str, Callable[[], Iterator[str]]] = {PAGES: made_up_pages, SALES: made_up_sales}
