"""Reads `time_ms TAB key` or `time_ms TAB key TAB count` lines in bounded memory.

The count is ignored, because load is counted in tuples.
"""

from __future__ import annotations

import contextlib
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from skewless.errors import ConfigurationError
from skewless.times import FIRST_INSTANT, LAST_INSTANT

STDIN = "-"
BLOCK_BYTES = 2**17
"""Bytes that are parsed at once, so also the maximum of a line. A key of a pipeline has at most half as many."""
COMPRESSION_BY_EXTENSION = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}

_TIME, _KEY, _COUNT = "f0", "f1", "f2"
"""Names that pyarrow gives to the columns of a file without a header."""
_SCHEMA = pa.schema({_TIME: pa.int64(), _KEY: pa.string()})
# Errors contain the number of the line only without threads.
_READ = csv.ReadOptions(use_threads=False, block_size=4 * BLOCK_BYTES, autogenerate_column_names=True)
_PARSE = csv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False, ignore_empty_lines=False)
_CONVERT = csv.ConvertOptions(
    column_types={_TIME: pa.int64(), _KEY: pa.string(), _COUNT: pa.int64()}, null_values=[], strings_can_be_null=False
)
_LINE_NUMBER = re.compile(r"Row #(\d+)")
_COLUMNS = re.compile("Expected [23] columns")


@dataclass(frozen=True, slots=True)
class ParsedLines:
    """Consecutive lines: one key (Arrow array of strings) and one time (ms) per line."""

    keys: pa.StringArray
    times: NDArray[np.int64]


@dataclass
class Source:
    """An open file, or standard input."""

    name: str
    stream: BinaryIO | pa.NativeFile
    raw: pa.NativeFile | None
    size: int | None
    """Size of the file in bytes, compressed if it is; None if unknown."""
    read: int = 0
    """Number of bytes of the stream that were read."""

    @property
    def position(self) -> int:
        """Number of bytes that were read, compressed if they are in a compressed file."""
        return self.read if self.raw is None else int(self.raw.tell())


@contextlib.contextmanager
def open_source(path: str, stdin: BinaryIO | None = None) -> Iterator[Source]:
    """Open a file, decompressed by its extension, or standard input (`-`). Raises ConfigurationError if it fails."""
    if path == STDIN:
        yield Source("standard input", stdin or sys.stdin.buffer, None, None)
        return
    with contextlib.ExitStack() as stack:
        try:
            if Path(path).is_dir():
                raise ConfigurationError(f"{path}: is a folder; name a file of `time_ms TAB key` lines")
            raw = stack.enter_context(pa.OSFile(path))
            compression = COMPRESSION_BY_EXTENSION.get(Path(path).suffix)
            stream = pa.CompressedInputStream(raw, compression) if compression else raw
        except FileNotFoundError:
            raise ConfigurationError(f"{path}: no such file; check its name") from None
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        yield Source(path, stream, raw, raw.size())


def batches(source: Source, rows: int) -> Iterator[ParsedLines]:
    """Yield `rows` lines at a time, at the end fewer. Raises ConfigurationError with the number of a malformed line."""
    waiting = _SCHEMA.empty_table()
    for lines in _tables(source):
        waiting = pa.concat_tables([waiting, lines])
        while waiting.num_rows >= rows:
            yield _parsed(waiting.slice(0, rows))
            waiting = waiting.slice(rows)
    if waiting.num_rows:
        yield _parsed(waiting)


def _tables(source: Source) -> Iterator[pa.Table]:
    rows, columns = 0, None
    for lines in _whole_lines(source):
        if lines.startswith(BOM_UTF8):  # pyarrow would remove it
            raise _malformed(source, rows + 1)
        try:
            table = csv.read_csv(pa.BufferReader(lines), _READ, _PARSE, _CONVERT)
        except pa.ArrowInvalid as error:
            raise _invalid(source, str(error), rows) from None
        columns = columns or table.num_columns
        if table.num_columns not in {2, 3} or table.num_columns != columns:
            raise _malformed(source, rows + 1)
        times = table[_TIME].to_numpy()
        if (beyond := np.flatnonzero((times < FIRST_INSTANT) | (times > LAST_INSTANT))).size:
            raise _malformed(source, rows + int(beyond[0]) + 1)
        rows += table.num_rows
        yield table.select(_SCHEMA.names)


def _whole_lines(source: Source) -> Iterator[bytes]:
    """Yield about BLOCK_BYTES at a time, up to the end of a line."""
    # Arrow's own reader of streams would read in a thread, which may hold the lock of standard input at the end of an
    # interrupted process. Python then aborts.
    rest, mark = b"", BOM_UTF8
    try:
        while block := source.stream.read(BLOCK_BYTES):
            source.read += len(block)
            block, mark = block.removeprefix(mark), b""
            lines, line_end, rest = (rest + block).rpartition(b"\n")
            if line_end:
                yield lines + line_end
            elif len(rest) > BLOCK_BYTES:
                raise ConfigurationError(
                    f"{source.name}: no line end within {BLOCK_BYTES:,} bytes; is this a text file?"
                )
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(source.name, error) from error
    if rest:
        yield rest + b"\n"


def _parsed(lines: pa.Table) -> ParsedLines:
    return ParsedLines(lines[_KEY].combine_chunks(), lines[_TIME].combine_chunks().to_numpy())


def _unreadable(name: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{name}: cannot be read: {error}")


def _invalid(source: Source, problem: str, rows: int) -> ConfigurationError:
    """Return the error for a line that pyarrow cannot parse after `rows` lines; `problem` is the text of its error."""
    found = _LINE_NUMBER.search(problem)
    # The first line determines how many columns are expected.
    is_first = "Expected" in problem and not _COLUMNS.search(problem)
    line = rows + (1 if found is None or is_first else int(found[1]))
    if "UTF8" in problem:
        return ConfigurationError(f"{source.name}: line {line}: the key is not UTF-8")
    return _malformed(source, line)


def _malformed(source: Source, line: int) -> ConfigurationError:
    return ConfigurationError(
        f"{source.name}: line {line}: is not `time_ms TAB key`, or `time_ms TAB key TAB count` in all lines; "
        "time_ms and count are integers, and time_ms is within the years 1 to 9999"
    )
