"""Real files of the folder SKEWLESS_DATA: the known statistics of each file equal those of its splitter."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from skewless.lab.datasets import DatasetOptions, detect, find_dataset
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import RecordColumns

FOLDER = os.environ.get("SKEWLESS_DATA")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="SKEWLESS_DATA names no folder with real files")


@dataclass(frozen=True)
class KnownFile:
    """Statistics of a file. `share` is that of the hottest key among all values."""

    name: str
    dataset: str
    records: int
    tuples: int
    keys: int
    hottest: str
    share: float
    first_ms: int | None = None


FILES = [
    KnownFile("country_retail_2010-12_2011-06.txt.zst", "country", 245_903, 245_903, 37, "United Kingdom", 0.918),
    KnownFile("country_hotel_resort.txt.zst", "country", 40_060, 40_060, 126, "PRT", 0.440),
    KnownFile(
        "twitter_ticker_2014-01_2015-03.jsonl.zst", "ticker", 122_939, 122_939, 4_735, "AAPL", 0.091, 1388531408665
    ),
    KnownFile(
        "twitter_election_2016-11-08T01h.jsonl.zst",
        "election",
        46_923,
        31_038,
        2_401,
        "ElectionDay",
        0.531,
        1478568050000,
    ),
    KnownFile(
        "wiki_edits_by_page_20150912_00-12h.tsv.zst",
        "pages",
        18_176,
        18_176,
        16_783,
        "Wikipedia:Vandalismusmeldung",
        0.001,
        1442018952942,
    ),
    KnownFile(
        "http_nasa_by_page_19950701.tsv.zst",
        "pages",
        9_999,
        9_999,
        1_165,
        "/images/NASA-logosmall.gif",
        0.064,
        804571201000,
    ),
    KnownFile("pagecounts-20160801-000000.txt.zst", "pagecounts", 307_389, 307_389, 246, "en", 0.526, 1470009600000),
    KnownFile("clickstream-enwiki-2024-10_sample.tsv.zst", "clickstream", 9_936, 9_936, 9_820, "Main_Page", 0.986),
    KnownFile("wikispeedia_clicks_a.tsv.zst", "clickstream", 54_910, 54_910, 2_908, "United_States", 0.039),
    KnownFile(
        "retail_hour_category_2010-12_2011-06.csv.zst",
        "sales",
        245_903,
        245_903,
        3_651,
        "84077",
        0.013,
        1291191960000,
    ),
    KnownFile(
        "wiki_edits_hour_category_20150912_00-12h.csv.zst",
        "edits",
        18_176,
        18_176,
        49,
        "#en.wikipedia",
        0.336,
        1442018952942,
    ),
    KnownFile("ads_obd_men_impressions.csv.zst", "impressions", 20_000, 20_000, 34, "13", 0.115, 1574553663979),
    KnownFile("ads_obd_men_clicks.csv.zst", "clicks", 115, 115, 115, "men-bts-00190", 1 / 115, 1574562820638),
]


def file(known: KnownFile) -> Path:
    path = Path(FOLDER or "") / known.name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


@pytest.mark.parametrize("known", FILES, ids=lambda known: known.name)
def test_recorded_file_of_each_dataset_has_its_known_statistics(known: KnownFile) -> None:
    path = file(known)
    assert detect(path) == known.dataset
    dataset = find_dataset(known.dataset)
    parser = RecordParser(dataset.splitter())
    counts: Counter[str] = Counter()
    records, tuples, times = 0, 0, []
    for batch in dataset.batches(DatasetOptions(input=(path,))):
        parsed = parser.parse(RecordColumns.of_values(batch.values, batch.times))
        assert parsed.invalid == []
        assert parsed.times.tolist() == batch.times.tolist()
        for key, value in zip(parsed.keys, parsed.values["value"].to_pylist(), strict=True):
            counts[key] += value
        records, tuples = records + len(batch.values), tuples + len(parsed.keys)
        times.append(int(batch.times[0]))
    ((hottest, most),) = counts.most_common(1)
    assert (records, tuples, len(counts), hottest) == (known.records, known.tuples, known.keys, known.hottest)
    assert most / counts.total() == pytest.approx(known.share, abs=0.0006)
    assert known.first_ms in {None, times[0]}
