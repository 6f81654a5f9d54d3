"""What holds for every dataset: its splitter settings read its records, and words are Python's own source."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from skewless.datasets import DATASETS, DatasetOptions, find_dataset, splitter_settings, take
from skewless.datasets.lines import sources
from skewless.errors import ConfigurationError
from skewless.splitter.formats import Parsed, create_format

RAW = {
    "ticker": b'{"ticker": "AAPL", "timestamp": 1388531408665}\n1388531409\tFB\n',
    "pages": b"1442018952942\thttp://en.wikipedia.org/wiki/A\n1442018953\tB\n",
    "pagecounts": b"en.m A 3 500\nde B 4 900\n",
    "lines": b"one two\none\n",
}


def parse(name: str, folder: Path) -> Parsed:
    paths: tuple[Path, ...] = ()
    if name in RAW:
        paths = (folder / "raw",)
        paths[0].write_bytes(RAW[name])
    (chunk,) = take(DATASETS[name].chunks(DatasetOptions(input=paths)), 2)
    parsed = create_format(splitter_settings(name)).parse(chunk.values, chunk.times)
    assert np.array_equal(parsed.times, chunk.times)
    return parsed


@pytest.mark.parametrize("name", DATASETS)
def test_its_splitter_settings_read_its_records_at_the_time_they_are_sent_with(name: str, tmp_path: Path) -> None:
    parsed = parse(name, tmp_path)
    assert parsed.bad == []
    assert set(parsed.records.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("name", "tuples"),
    [
        ("ticker", [("AAPL", 1), ("FB", 1)]),
        ("pages", [("A", 1), ("B", 1)]),
        ("pagecounts", [("en", 3), ("de", 4)]),
        ("lines", [("one", 1), ("two", 1), ("one", 1)]),
    ],
)
def test_recorded_lines_give_their_key_and_count(name: str, tuples: list[tuple[str, int]], tmp_path: Path) -> None:
    parsed = parse(name, tmp_path)
    assert list(zip(parsed.keys, parsed.values.tolist(), strict=True)) == tuples


def test_words_are_the_source_of_the_standard_library_without_installed_packages() -> None:
    paths = sources()
    assert paths == sorted(paths, key=lambda path: path.as_posix())
    assert {"abc.py", "bisect.py"} <= {path.name for path in paths}
    assert not {"site-packages", "dist-packages"} & {part for path in paths for part in path.parts}


def test_words_have_no_blank_lines_and_are_all_readable() -> None:
    parser = create_format(splitter_settings("words"))
    counts: Counter[str] = Counter()
    for chunk in take(DATASETS["words"].chunks(DatasetOptions()), 20_000):
        assert all(map(bytes.strip, chunk.values))
        parsed = parser.parse(chunk.values, chunk.times)
        assert parsed.bad == []
        counts.update(parsed.keys)
    assert counts["self"] > counts["class"] > 0


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown dataset 'nope'.*zipf.*pagecounts"):
        find_dataset("nope")
