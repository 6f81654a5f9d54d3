"""Properties of every data set: its splitter settings parse its records. The words are Python's own source."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from skewless.errors import ConfigurationError
from skewless.lab.datasets import DATASETS, DatasetOptions, find_dataset, find_name, take
from skewless.lab.datasets.line_streams import sources
from skewless.parsing.formats import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import RecordColumns

RAW = {
    "country": b"Brazil\nBrazil\n",
    "ticker": b'{"ticker": "AAPL", "timestamp": 1388531408665}\n1388531409\tFB\n',
    "election": b'{"timestamp": 1478566800, "hashtags": ["iVoted", "a?", "News"]}\n'
    b'{"timestamp_ms": "1478566801000", "entities": {"hashtags": [{"text": "UsaToday"}]}}\n',
    "pages": b"1442018952942\thttp://en.wikipedia.org/wiki/A\n1442018953\tB\n",
    "pagecounts": b"en.m A 3 500\nde B 4 900\n",
    "clickstream": b"A\tB\tlink\t3\nother-search\tA\texternal\t40\n",
    "sales": b"2010-12-01 08:26:00;85123A;United Kingdom;6;2.55\n1291192020;71053;France;-1;3.39\n",
    "edits": b"1442018952942;#vi.wikipedia;18;0\n1442018956472;#ca.wikipedia;15;7\n",
    "impressions": b"x-1;1574553663979;2;3\nx-2;2019-11-24;9;1\n",
    "clicks": b"x-1;1574562820638\nx-2;2019-11-25 00:00:00;more\n",
    "lines": b"one two\none\n",
}


def parse(name: str, folder: Path) -> ParsedBatch:
    paths: tuple[Path, ...] = ()
    if name in RAW:
        paths = (folder / "raw",)
        paths[0].write_bytes(RAW[name])
    (batch,) = take(DATASETS[name].batches(DatasetOptions(input=paths)), 2)
    parsed = RecordParser(DATASETS[name].splitter()).parse(RecordColumns.of_values(batch.values, batch.times))
    assert np.array_equal(parsed.times, batch.times)
    return parsed


@pytest.mark.parametrize("name", DATASETS)
def test_dataset_splitter_settings_parse_its_records_with_their_own_times(name: str, tmp_path: Path) -> None:
    parsed = parse(name, tmp_path)
    assert parsed.invalid == []
    assert set(parsed.records.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("name", "tuples"),
    [
        ("country", [("Brazil", 1), ("Brazil", 1)]),
        ("ticker", [("AAPL", 1), ("FB", 1)]),
        ("election", [("ElectionDay", 1), ("News", 1), ("ElectionDay", 1)]),
        ("pages", [("A", 1), ("B", 1)]),
        ("pagecounts", [("en", 3), ("de", 4)]),
        ("clickstream", [("B", 3), ("A", 40)]),
        ("sales", [("85123A", 6), ("71053", -1)]),
        ("edits", [("#vi.wikipedia", 18), ("#ca.wikipedia", 15)]),
        ("impressions", [("2", 1), ("9", 1)]),
        ("clicks", [("x-1", 1), ("x-2", 1)]),
    ],
)
def test_recorded_dataset_lines_give_their_key_and_count(
    name: str, tuples: list[tuple[str, int]], tmp_path: Path
) -> None:
    parsed = parse(name, tmp_path)
    assert list(zip(parsed.keys, parsed.values["value"].to_pylist(), strict=True)) == tuples


def test_words_dataset_sources_are_the_standard_library_without_installed_packages() -> None:
    paths = sources()
    assert paths == sorted(paths, key=lambda path: path.as_posix())
    assert {"abc.py", "bisect.py"} <= {path.name for path in paths}
    assert not {"site-packages", "dist-packages"} & {part for path in paths for part in path.parts}


def test_words_dataset_lines_are_not_blank_and_all_parsed() -> None:
    parser = RecordParser(DATASETS["words"].splitter())
    counts: Counter[str] = Counter()
    for batch in take(DATASETS["words"].batches(DatasetOptions()), 20_000):
        assert all(map(bytes.strip, batch.values))
        parsed = parser.parse(RecordColumns.of_values(batch.values, batch.times))
        assert parsed.invalid == []
        counts.update(parsed.keys)
    assert counts["self"] > counts["class"] > 0


def test_dataset_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown dataset nope .*pagecounts.*zipf"):
        find_dataset("nope")


@pytest.mark.parametrize(
    ("published", "name"),
    [
        ("TWITTER_TICKER", "ticker"),
        ("TWITTER_ELECTION", "election"),
        ("WIKIPEDIA_PAGEVIEWS", "pages"),
        ("WIKIPEDIA_PAGEVIEWS_BY_LANG", "pagecounts"),
        ("WIKIPEDIA_CLICKSTREAM", "clickstream"),
        ("wikipedia-clickstream", "clickstream"),
        ("COUNTRY_SKEW_R0", "country-skew"),
        ("COUNTRY_SKEW_R100", "country-skew"),
        ("COUNTRY_HALF_SKEW_R80", "country-half-skew"),
    ],
)
def test_dataset_published_name_is_an_alias(published: str, name: str) -> None:
    assert find_name(published) == name


@pytest.mark.parametrize("name", ["COUNTRY_SKEW_R101", "COUNTRY_SKEW_R", "COUNTRY_PUBLISHED_R80"])
def test_dataset_name_with_a_skew_that_is_not_a_percentage_is_unknown(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown dataset {name}"):
        find_dataset(name)


def test_dataset_skew_option_with_a_skew_in_the_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--skew: the dataset's name already sets it to 80"):
        find_dataset("COUNTRY_SKEW_R80").batches(DatasetOptions(skew=30))


def test_dataset_options_of_other_datasets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a;1;2;3")
    for name, options, refused in (
        ("zipf", DatasetOptions(keys=3, disorder_ms=5, duplicates=0.5), ["--disorder-ms", "--duplicates"]),
        ("country-skew", DatasetOptions(skew=3, keys=5), ["--keys"]),
        ("country-published", DatasetOptions(skew=3), ["--skew"]),
        ("impressions", DatasetOptions(input=(path,), seed=3, disorder_ms=5), ["--disorder-ms"]),
    ):
        with pytest.raises(ConfigurationError) as caught:
            DATASETS[name].batches(options)
        assert [problem.partition(":")[0] for problem in caught.value.problems] == refused


def test_dataset_total_is_the_chosen_number_then_the_lines_of_files_then_the_generated_number(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n\nb")
    totals = [
        find_dataset(name).total(options)
        for name, options in (
            ("ticker", DatasetOptions(input=(path,))),
            ("ticker", DatasetOptions(input=(path,), records=1)),
            ("ticker", DatasetOptions()),
            ("words", DatasetOptions()),
        )
    ]
    assert totals == [2, 1, 1_000_000, None]
