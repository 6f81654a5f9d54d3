"""Recorded datasets: every raw format and compression, malformed lines, and files that cannot be read."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skewless.errors import ConfigurationError
from skewless.lab.datasets import DATASETS, DatasetOptions, data_files, detect
from skewless.lab.datasets.base import START_MS
from skewless.lab.datasets.recorded_files import hour_of

HOUR = 1_470_009_600_000  # 2016-08-01T00:00:00Z
TICK = b'{"ticker": "AAPL", "timestamp": 1388531408665}'


def records(name: str, *paths: Path, **options: Any) -> list[tuple[bytes, int]]:
    batches = DATASETS[name].batches(DatasetOptions.model_validate({"input": paths, **options}))
    return [record for batch in batches for record in zip(batch.values, batch.times.tolist(), strict=True)]


def arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.compress(data, codec=codec, asbytes=True))


@pytest.mark.parametrize(
    ("ending", "compress"),
    [(".txt", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".zst", arrow("zstd")), (".lz4", arrow("lz4"))],
)
def test_data_files_compressed_file_gives_the_same_lines(
    ending: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    lines = [b"line %d" % number for number in range(100_000)]
    path = tmp_path / f"some{ending}"
    path.write_bytes(compress(b"\n".join(lines)))
    assert [value for value, _ in records("lines", path)] == lines


def test_data_files_blocks_end_anywhere_give_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes("één\n\ntwee\ndrie".encode())
    for size in range(1, 20):
        monkeypatch.setattr(data_files, "BLOCK_BYTES", size)
        assert [value.decode() for value, _ in records("lines", path)] == ["één", "twee", "drie"]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 512])
def test_data_files_byte_order_mark_is_removed_from_the_first_line(
    compress: Callable[[bytes], bytes], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "BLOCK_BYTES", size)
    path = tmp_path / ("ticks" if compress is bytes else "ticks.gz")
    path.write_bytes(compress(BOM_UTF8 + TICK + b"\n" + BOM_UTF8 + b"\n"))
    assert [value for value, _ in records("lines", path)] == [TICK, BOM_UTF8]
    assert data_files.count_lines(path) == 2
    path.write_bytes(compress(BOM_UTF8 + TICK))
    assert records("ticker", path) == [(TICK, 1388531408665)]
    assert detect(path) == "ticker"


@pytest.mark.parametrize("content", [BOM_UTF8, BOM_UTF8 + b"\n"])
def test_data_files_file_with_only_a_byte_order_mark_is_empty(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ticks"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is empty"):
        detect(path)


@pytest.mark.parametrize("content", [b"a", b"ab", b"abc", b"a\nb", b"\n\n\na"])
def test_data_files_short_file_is_read_completely(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(content)
    assert [value for value, _ in records("lines", path)] == content.split()


@pytest.mark.parametrize("name", ["ticker", "election", "country", "sales"])
def test_recorded_dataset_json_nested_too_deep_is_sent_unchanged(name: str, tmp_path: Path) -> None:
    line = b'{"x": %b%b}' % (b"[" * 3_000, b"]" * 3_000)
    path = tmp_path / "deep"
    path.write_bytes(line)
    assert [value for value, _ in records(name, path)] == [line]


def test_recorded_dataset_several_files_follow_each_other_in_event_time(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(f"{name}\n")
    assert records("lines", tmp_path / "b", tmp_path / "a", event_rate=1) == [
        (b"b", START_MS),
        (b"a", START_MS + 1000),
    ]


def test_data_files_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(3_000_000))
    with pytest.raises(ConfigurationError, match=r"zeros.*text file"):
        records("lines", path)


def test_ticker_dataset_json_lines_are_sent_unchanged_at_their_own_time(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(TICK + b"\n")
    assert records("ticker", path) == [(TICK, 1388531408665)]


@pytest.mark.parametrize("raw", [b"1388531408\tAAPL", b"1388531408\tAAPL\r", b"1388531408000\tAAPL"])
def test_ticker_dataset_raw_lines_become_json_in_milliseconds(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tickers.tsv"
    path.write_bytes(raw + b"\n")
    ((value, time),) = records("ticker", path)
    assert json.loads(value) == {"ticker": "AAPL", "timestamp": 1388531408000}
    assert time == 1388531408000


def test_pages_dataset_times_are_sent_in_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_bytes(b"1442018952942\tA b\n1442018953\tC\td\n")
    assert records("pages", path) == [
        (b"1442018952942\tA b", 1442018952942),
        (b"1442018953000\tC\td", 1442018953000),
    ]


@pytest.mark.parametrize(
    "invalid", [b"junk", b"{", b'{"ticker": 5}', b"x\ty", b"9" * 30 + b"\tA", b"-5\tA", b"\xff\xfe"]
)
@pytest.mark.parametrize(("name", "good"), [("ticker", TICK), ("pages", b"1388531408665\tA")])
def test_recorded_dataset_malformed_line_is_sent_at_the_previous_time(
    name: str, good: bytes, invalid: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "mixed"
    path.write_bytes(b"\n".join([good, invalid, good]))
    assert records(name, path) == [(good, 1388531408665), (invalid, 1388531408665), (good, 1388531408665)]


def test_pagecounts_dataset_lines_are_distributed_over_the_hour_of_their_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"pagecounts-20160801-0{hour}0000.gz" for hour in range(2)]
    for path in paths:
        path.write_bytes(gzip.compress(b"en A 1 2\nmalformed\nde B 3 4\nfr C 5 6\n"))
    found = records("pagecounts", *paths)
    assert [value for value, _ in found[:4]] == [b"en A 1 2", b"malformed", b"de B 3 4", b"fr C 5 6"]
    assert [(time - HOUR) / 60_000 for _, time in found] == [0, 15, 30, 45, 60, 75, 90, 105]


def test_pagecounts_dataset_with_a_rate_or_without_an_hour_has_a_fixed_rate(tmp_path: Path) -> None:
    named, plain = tmp_path / "pagecounts-20160801-000000", tmp_path / "some.txt"
    for path in (named, plain):
        path.write_bytes(b"en A 1 2\nde B 3 4\n")
    assert [time - START_MS for _, time in records("pagecounts", named, event_rate=2)] == [0, 500]
    assert [time - START_MS for _, time in records("pagecounts", plain)] == [0, 1]


@pytest.mark.parametrize("name", ["pagecounts-20169901-000000", "pagecounts-20160801-250000", "pagecounts.txt"])
def test_hour_of_file_name_without_a_valid_hour_is_none(name: str) -> None:
    assert hour_of(Path(name)) is None


@pytest.mark.parametrize(
    ("name", "content", "dataset"),
    [
        ("x.jsonl", TICK, "ticker"),
        ("x.tsv", b"1442018952942\tAtractus apophis", "pages"),
        ("ticker.tsv", b"1442018952\tAAPL", "ticker"),
        ("x.txt", b"ace Aimag 1 9615\nen.b B 2 3", "pagecounts"),
        ("pagecounts-20160801-000000.txt", b"anything", "pagecounts"),
        ("x.tsv", b"other-search\tA\texternal\t40", "clickstream"),
        ("x.csv", b"2010-12-01 08:26:00;85123A;United Kingdom;6;2.55", "sales"),
        ("x.csv", b"1442018952942;#vi.wikipedia;18;0", "edits"),
        ("x.csv", b"men-1;1574553663979;2;2", "impressions"),
        ("x.csv", b"men-1;1574553663979", "clicks"),
        ("x.jsonl", b'{"timestamp": 5, "hashtags": []}', "election"),
        ("x.jsonl", b'{"timestamp_ms": "5", "text": "", "entities": {"hashtags": []}}', "election"),
        ("country_list.txt", "Côte d'Ivoire".encode(), "country"),
        ("country_list.txt", b"a;b", "lines"),
        ("x.txt", b"It was the best of times", "lines"),
        ("x.jsonl", b'{"user": "A", "timestamp": 5}', "lines"),
    ],
)
def test_detect_dataset_follows_file_name_and_first_lines(
    name: str, content: bytes, dataset: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content + b"\n")
    assert detect(path) == dataset


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if dataset.generate])
def test_detect_dataset_of_produced_records_finds_the_one_that_reads_them(name: str, tmp_path: Path) -> None:
    path = tmp_path / "records.txt"
    path.write_bytes(b"\n".join(next(DATASETS[name].batches(DatasetOptions())).values[:100]))
    splitter = DATASETS[name].splitter()
    readers = [reader for reader, dataset in DATASETS.items() if dataset.read and dataset.splitter() == splitter]
    assert [detect(path)] == (readers or ["lines"])


def test_detect_dataset_of_an_unusable_file_raises_with_the_reason(tmp_path: Path) -> None:
    empty, blank, broken = tmp_path / "empty", tmp_path / "blank", tmp_path / "broken.gz"
    empty.touch()
    blank.write_bytes(b"\n\n")
    broken.write_bytes(b"no gzip")
    for path, reason in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "is not a regular file"),
        (Path(os.devnull), "is not a regular file"),
        (empty, "is empty"),
        (blank, "is empty"),
        (broken, "cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=f"{path}: {reason}"):
            detect(path)


def test_data_files_truncated_file_raises_with_its_name_during_the_read(tmp_path: Path) -> None:
    path = tmp_path / "short.gz"
    path.write_bytes(gzip.compress(b"line\n" * 10)[:-12])
    with pytest.raises(ConfigurationError, match=r"short\.gz: cannot be read"):
        records("lines", path)


def test_recorded_file_lines_before_the_first_time_have_that_time(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("time;category;country;quantity;price\n1470000000000;C1;DE;1;2.5\nx\n1470000001000;C1;DE;1;2.5\n")
    assert [time for _, time in records("sales", path)] == [1470000000000, 1470000000000, 1470000000000, 1470000001000]
    path.write_text("time;category;country;quantity;price\n")
    assert [time for _, time in records("sales", path)] == [START_MS]
