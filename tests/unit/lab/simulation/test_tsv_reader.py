"""Lines of `time_ms TAB key [TAB count]`: valid lines, and invalid ones with their line numbers."""

from __future__ import annotations

import gzip
import io
from codecs import BOM_UTF8
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless.algorithms.record_size import MAX_LINE_BYTES
from skewless.errors import ConfigurationError
from skewless.lab.simulation.tsv_reader import STDIN, batches, open_source

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


@settings(deadline=None)  # the first call may compile
@given(
    st.lists(st.tuples(st.integers(-(10**17), 10**17), KEYS, st.sampled_from(["", "\t1", "\t-7"]))),
    st.integers(1, 5),
    st.sampled_from([b"", b"\n"]),
)
def test_tsv_reader_lines_are_returned_in_batches_of_the_requested_size(
    lines: list[tuple[int, str, str]], rows: int, end: bytes
) -> None:
    text = "\n".join(f"{time}\t{key}{count}" for time, key, count in lines).encode()
    parts = read(text + (end if lines else b""), rows)
    assert [row for part in parts for row in part] == [(time, key) for time, key, _ in lines]
    assert all(len(part) == rows for part in parts[:-1])


def test_tsv_reader_carriage_returns_are_not_part_of_the_key() -> None:
    assert flat(b"1\ta\r\n2\tb\t3\r\n") == [(1, "a"), (2, "b")]


def test_tsv_reader_line_longer_than_a_read_block_is_read() -> None:
    assert flat(b"1\t" + b"a" * 10_000 + b"\n2\tb\n", 1) == [(1, "a" * 10_000), (2, "b")]


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
        (b"1\tb\tc", "is not"),
        (b"1\tb\t", "is not"),
        (b"1\tb\t2\t3", "is not"),
        (b"99999999999999999999\tb", "is not"),
        (b"1\t\xff", "the key is not UTF-8"),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 9])
def test_tsv_reader_malformed_line_is_refused_with_its_number(invalid: bytes, why: str, before: int) -> None:
    message = problem(b"1\ta\n" * before + invalid + b"\n2\tc\n")
    assert message.startswith(f"standard input: line {before + 1}: {why}")


def test_tsv_reader_line_beyond_the_limit_is_refused_as_not_text() -> None:
    assert "is this a text file?" in problem(b"1\t" + b"a" * (MAX_LINE_BYTES + 1000))


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
    for path, why in ((tmp_path / "none", "no such file"), (tmp_path, "is a folder"), (damaged, "cannot be read")):
        with pytest.raises(ConfigurationError, match=why), open_source(str(path)) as source:
            list(batches(source, 9))
