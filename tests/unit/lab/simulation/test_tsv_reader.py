"""Lines of `time_ms TAB key [TAB count]`: valid lines, and invalid ones with their line numbers."""

from __future__ import annotations

import gzip
import io
from codecs import BOM_UTF8
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import ConfigurationError
from skewless.lab.simulation.tsv_reader import BLOCK_BYTES, STDIN, batches, open_source
from skewless.times import FIRST_INSTANT, LAST_INSTANT

Row = tuple[int, str]
KEYS = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), max_size=8)


def read(text: bytes, rows: int = 4) -> list[list[Row]]:
    with open_source(STDIN, io.BytesIO(text)) as source:
        return [list(zip(lines.times.tolist(), lines.keys.to_pylist(), strict=True)) for lines in batches(source, rows)]


def flat(text: bytes, rows: int = 4) -> list[Row]:
    return [row for part in read(text, rows) for row in part]


def problem(text: bytes) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(text)
    return str(caught.value)


@given(
    st.lists(st.tuples(st.integers(FIRST_INSTANT, LAST_INSTANT), KEYS)),
    st.sampled_from(["", "\t1", "\t-7"]),
    st.integers(1, 5),
    st.sampled_from(["", "\n"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_tsv_reader_lines_are_returned_in_batches_of_the_requested_size(
    lines: list[Row], count: str, rows: int, end: str, separator: str
) -> None:
    text = separator.join(f"{time}\t{key}{count}" for time, key in lines)
    parts = read((text + (end if lines else "")).encode(), rows)
    assert [row for part in parts for row in part] == lines
    assert all(len(part) == rows for part in parts[:-1])


@pytest.mark.parametrize("key", ["", " ", '"', '"a', "NULL", "nan", "1", "a\\", "'", "\0", "\ufeff"])
def test_tsv_reader_key_is_read_as_it_is(key: str) -> None:
    assert flat(f"1\t{key}\n2\tb\n".encode()) == [(1, key), (2, "b")]


def test_tsv_reader_line_longer_than_a_read_block_is_read() -> None:
    assert flat(b"1\t" + b"a" * 100_000 + b"\n2\tb\n", 1) == [(1, "a" * 100_000), (2, "b")]


@pytest.mark.parametrize(
    ("invalid", "why"),
    [
        (b"x\tb", "is not `time_ms TAB key`"),
        (b"1.5\tb", "is not"),
        (b"1 b", "is not"),
        (b"", "is not"),
        (b"-\tb", "is not"),
        (b"1", "is not"),
        (b"\tb", "is not"),
        (b"1\tb\t2\t3", "is not"),
        (b"99999999999999999999\tb", "is not"),
        (b"9223372036854775807\tb", "is not"),
        (b"%d\tb" % (FIRST_INSTANT - 1), "is not"),
        (b"1\t\xff", "the key is not UTF-8"),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 9])
def test_tsv_reader_malformed_line_is_refused_with_its_number(invalid: bytes, why: str, before: int) -> None:
    message = problem(b"1\ta\n" * before + invalid + b"\n2\tc\n")
    assert message.startswith(f"standard input: line {before + 1}: {why}")


@pytest.mark.parametrize("invalid", [b"1\tb\tc", b"1\tb\t", b"1\tb"])
def test_tsv_reader_malformed_count_is_refused_with_its_line_number(invalid: bytes) -> None:
    assert problem(b"1\ta\t1\n" * 9 + invalid + b"\n").startswith("standard input: line 10: is not")


@pytest.mark.parametrize("text", [b"1\t" + b"a" * (BLOCK_BYTES + 1000), b"1\ta\n2\t" + b"a" * 2 * BLOCK_BYTES])
def test_tsv_reader_line_without_an_end_is_refused_as_not_text(text: bytes) -> None:
    assert "no line end within 131,072 bytes; is this a text file?" in problem(text)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_tsv_reader_byte_order_mark_is_removed_from_the_first_line(rows: int) -> None:
    assert flat(BOM_UTF8 + b"1\ta\n2\tb", rows) == [(1, "a"), (2, "b")]
    assert flat(BOM_UTF8, rows) == []
    assert problem(b"1\ta\n" + BOM_UTF8 + b"2\tb") == problem(b"1\ta\nx\tb")


def test_tsv_reader_empty_file_has_no_lines() -> None:
    assert read(b"") == []


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.tsv.zst"])
def test_tsv_reader_compressed_file_is_read(tmp_path: Path, name: str) -> None:
    path, text = tmp_path / name, b"1\ta\n2\tb\n"
    if path.suffix == ".zst":
        path.write_bytes(pa.compress(text, "zstd", asbytes=True))
    else:
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    with open_source(str(path)) as source:
        assert [lines.keys.to_pylist() for lines in batches(source, 9)] == [["a", "b"]]
        assert source.position == source.size == path.stat().st_size


def test_tsv_reader_file_that_cannot_be_read_raises_with_the_reason(tmp_path: Path) -> None:
    damaged = tmp_path / "a.zst"
    damaged.write_bytes(b"not zstd")
    reasons = {tmp_path / "none": "no such file", tmp_path: "is a folder"}
    reasons |= dict.fromkeys((damaged, tmp_path / ("n" * 300)), "cannot be read")
    for path, why in reasons.items():
        with pytest.raises(ConfigurationError, match=why), open_source(str(path)) as source:
            list(batches(source, 9))
