"""Tests of the inputs of a pipeline with real records: the stream and the audit give the same results."""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from helpers.kafka import Pipeline, Record, Source
from skewless.cli.main import main

FOLDER = os.environ.get("SKEWLESS_DATA")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(FOLDER is None, reason="SKEWLESS_DATA names no folder with real files"),
]
PARTITIONS = 3
LINES = 6_000


def lines(name: str) -> Iterator[str]:
    """Yield the first lines of a file of real data."""
    with pa.input_stream(str(Path(FOLDER or "") / f"{name}.zst"), compression="zstd") as file:
        text = io.TextIOWrapper(io.BufferedReader(file), encoding="utf-8")
        for line in itertools.islice(text, LINES):
            yield line.rstrip("\n")


def record(number: int, time: int, value: str | None, key: str | None = None, **headers: str) -> Record:
    partition = number // 100 % PARTITIONS
    encoded = {name: text.encode() for name, text in headers.items()}
    return Record(partition, 0, time, key.encode() if key else None, value.encode() if value else None, encoded)


def pages(*, in_headers: bool) -> Iterator[Record]:
    """Yield page views: the page is the record key, or page and time are headers. Every 500th record has none."""
    for number, line in enumerate(lines("http_nasa_by_page_19950701.tsv")):
        time, page = line.split("\t")
        if number % 500 == 499:
            yield record(number, int(time), line)
        elif in_headers:
            yield record(number, 0, line, page=page, at=time)
        else:
            yield record(number, int(time), line, page)


def sales() -> Iterator[Record]:
    """Yield sales of `time;category;country;quantity;unit_price`. Every 700th line has no category."""
    for number, line in enumerate(lines("retail_hour_category_2010-12_2011-06.csv")):
        time, *rest = line.split(";")
        yield record(number, 0, time if number % 700 == 699 else ";".join([time, *rest]))


SALES = {
    "format": {"name": "csv", "delimiter": ";", "columns": ["time", "category", "country", "quantity", "unit_price"]},
    "value": {"field": "unit_price", "decimals": 2},
    "time": {"field": "time", "unit": "iso8601"},
}
DAY = {"aggregator": {"window_s": 86_400}, "worker": {"pane_s": 3_600}, "observer": {"tick_s": 86_400}}
PAGES_START = 804_574_236_000
"""A time within the page views, in ms."""
CASES: dict[str, tuple[Callable[[], Iterator[Record]], dict[str, Any]]] = {
    "record key": (lambda: pages(in_headers=False), {"splitter": None}),
    "headers": (
        lambda: pages(in_headers=True),
        {"splitter": {"key": {"header": "page"}, "value": {}, "time": {"header": "at"}}},
    ),
    "start at a time": (lambda: pages(in_headers=False), {"splitter": None, "source": {"start": PAGES_START}}),
    "composite key, where": (
        sales,
        {
            **DAY,
            "splitter": {
                **SALES,
                "key": {"fields": [{"field": "category"}, {"field": "time", "name": "hour", "truncate": "hour"}]},
                "where": [{"field": "country", "is_not": "United Kingdom"}, {"field": "quantity", "above": 0}],
            },
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_pipeline_that_reads_real_records_has_no_difference_to_its_audit(
    name: str, broker: str, tmp_path: Path
) -> None:
    records, parts = CASES[name]
    source = Source(broker, PARTITIONS)
    source.send_complete(records())
    pipeline = Pipeline(broker, tmp_path, source, **parts)
    pipeline.drain()
    report = audited(pipeline)
    assert report["records"] == LINES or ("start" in name and 100 < report["records"] < LINES - 100)
    assert report["compared"] == len(pipeline.results()[0]) > 100
    assert report["dead_letters"] == pipeline.count("dead-letters")


def audited(pipeline: Pipeline) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["audit", "-f", str(pipeline.file), "--json"])
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    assert (report["differences"], report["left_out"], report["settled"]) == (0, {}, True)
    return report
