"""Reading `time_ms TAB key [TAB count]` lines in bounded memory; the count is read over, since load is tuples."""

from __future__ import annotations

import contextlib
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled
from skewless.errors import ConfigurationError

STDIN = "-"
LINE_BYTES = 64
"""Bytes read per line that is wanted: few reads for usual keys."""
LONGEST_LINE = 1_000_000
"""Bytes; about what a broker takes as one record by default."""
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}

_NEWLINE, _RETURN, _TAB, _MINUS, _ZERO, _NINE = b"\n\r\t-09"
_DIGITS = 18
"""As many always fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines: keys (an Arrow array of strings) and times in ms, one each per line."""

    keys: pa.StringArray
    times: NDArray[np.int64]


class Stream(Protocol):
    """What is read: a pyarrow or Python stream of bytes."""

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes; none at the end."""
        ...


@dataclass
class Source:
    """An open file, or standard input."""

    name: str
    stream: Stream
    raw: pa.NativeFile | None
    size: int | None
    """Bytes in the file, as stored; None when not known."""

    @property
    def position(self) -> int:
        """How many of these bytes were read; 0 when the size is not known."""
        return int(self.raw.tell()) if self.raw is not None else 0


@contextlib.contextmanager
def open_source(path: str, stdin: BinaryIO | None = None) -> Iterator[Source]:
    """Open a file, compressed or not by its ending, or standard input (`-`); ConfigurationError says what is wrong."""
    if path == STDIN:
        yield Source("standard input", stdin or sys.stdin.buffer, None, None)
        return
    if Path(path).is_dir():
        raise ConfigurationError(f"{path}: is a folder; name a file of `time_ms TAB key` lines")
    with contextlib.ExitStack() as stack:
        try:
            raw = stack.enter_context(pa.OSFile(path))
            compression = COMPRESSED.get(Path(path).suffix)
            stream = pa.CompressedInputStream(raw, compression) if compression else raw
        except FileNotFoundError:
            raise ConfigurationError(f"{path}: no such file; check its name") from None
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        yield Source(path, stream, raw, raw.size())


def batches(source: Source, rows: int) -> Iterator[Lines]:
    """Read `rows` lines at a time, the last time fewer; ConfigurationError names the first line that is malformed."""
    text, done, ended = _read(source, len(BOM_UTF8)).removeprefix(BOM_UTF8), 0, False
    fields = np.empty(2 * rows, dtype=np.int32)
    times = np.empty(rows, dtype=np.int64)
    while text or not ended:
        found, end, good = _scan(np.frombuffer(text, dtype=np.uint8), fields, times)
        if not good:
            raise _malformed(source, done + found + 1)
        if found == rows or (ended and found):
            yield Lines(_keys(source, text, fields[: 2 * found], done), times[:found].copy())
            done += found
            text = text[end:]
            continue
        if len(text) - end > LONGEST_LINE:
            raise ConfigurationError(
                f"{source.name}: line {done + found + 1}: over {LONGEST_LINE:,} bytes; is this a text file?"
            )
        if not (more := _read(source, max(rows * LINE_BYTES, len(text)))):
            ended = True
            more = b"" if not text or text.endswith(b"\n") else b"\n"
        text += more


def _read(source: Source, size: int) -> bytes:
    try:
        return bytes(source.stream.read(size))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(source.name, error) from error


def _unreadable(name: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{name}: cannot be read: {error}")


def _keys(source: Source, text: bytes, fields: NDArray[np.int32], done: int) -> pa.StringArray:
    """Cut the keys out of the text: every second one of the pieces between all starts and ends."""
    pieces = pa.StringArray.from_buffers(len(fields) - 1, pa.py_buffer(fields), pa.py_buffer(text))
    keys = pieces.take(pa.array(np.arange(0, len(fields), 2)))
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        wrong = next(row for row, key in enumerate(keys.cast(pa.binary()).to_pylist()) if not _is_utf8(key))
        raise ConfigurationError(f"{source.name}: line {done + wrong + 1}: the key is not UTF-8") from None
    return keys


def _is_utf8(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _malformed(source: Source, line: int) -> ConfigurationError:
    return ConfigurationError(
        f"{source.name}: line {line}: is not `time_ms TAB key` or `time_ms TAB key TAB count`, both whole numbers"
    )


@compiled
def _digits(text: NDArray[np.uint8], start: int) -> tuple[int, int]:
    """Read a whole number: its value, and where it ends; `start` when there is none."""
    at = start
    negative = at < len(text) and text[at] == _MINUS
    if negative:
        at += 1
    first, value = at, 0
    while at < len(text) and _ZERO <= text[at] <= _NINE and at - first <= _DIGITS:
        value = value * 10 + int(np.int64(text[at])) - _ZERO
        at += 1
    if at == first or at - first > _DIGITS:
        return 0, start
    return -value if negative else value, at


@compiled
def _scan(text: NDArray[np.uint8], fields: NDArray[np.int32], times: NDArray[np.int64]) -> tuple[int, int, bool]:
    """Find lines until `times` is full: their number, where they end, and whether the line behind them may be one.

    `fields` gets start and end of each key. A line that has no end yet is not looked at.
    """
    row = at = 0
    while row < len(times):
        end = at
        while end < len(text) and text[end] != _NEWLINE:
            end += 1
        if end == len(text):
            break
        last = end - 1 if end > at and text[end - 1] == _RETURN else end
        times[row], start = _digits(text, at)
        if start == at or text[start] != _TAB:
            return row, at, False
        key_end = start + 1
        while key_end < last and text[key_end] != _TAB:
            key_end += 1
        if key_end < last and (key_end + 1 == last or _digits(text, key_end + 1)[1] != last):
            return row, at, False
        fields[2 * row], fields[2 * row + 1] = start + 1, key_end
        row, at = row + 1, end + 1
    return row, at, True
