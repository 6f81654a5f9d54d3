"""Reads `time_ms TAB key [TAB count]` lines in bounded memory. Ignores the count, because load is counted in tuples."""

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

from skewless.algorithms.jit import jit
from skewless.algorithms.record_size import MAX_LINE_BYTES
from skewless.errors import ConfigurationError
from skewless.parsing.utf8 import is_utf8

STDIN = "-"
LINE_BYTES = 64
"""Bytes to read per requested line. Lines with usual keys are shorter, so one read is mostly enough."""
COMPRESSION_BY_EXTENSION = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}

_NEWLINE, _RETURN, _TAB, _MINUS, _ZERO, _NINE = b"\n\r\t-09"
_MAX_DIGITS = 18
"""Numbers of so many digits always fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class ParsedLines:
    """Consecutive lines: one key (Arrow array of strings) and one time (ms) per line."""

    keys: pa.StringArray
    times: NDArray[np.int64]


class Stream(Protocol):
    """A pyarrow or Python stream of bytes."""

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes. Returns no bytes at the end."""
        ...


@dataclass
class Source:
    """An open file, or standard input."""

    name: str
    stream: Stream
    raw: pa.NativeFile | None
    size: int | None
    """Size of the file in bytes, compressed if it is; None if unknown."""

    @property
    def position(self) -> int:
        """Number of these bytes that were read; 0 if the size is unknown."""
        return int(self.raw.tell()) if self.raw is not None else 0


@contextlib.contextmanager
def open_source(path: str, stdin: BinaryIO | None = None) -> Iterator[Source]:
    """Open a file, decompressed by its extension, or standard input (`-`). Raises ConfigurationError if it fails."""
    if path == STDIN:
        yield Source("standard input", stdin or sys.stdin.buffer, None, None)
        return
    if Path(path).is_dir():
        raise ConfigurationError(f"{path}: is a folder; name a file of `time_ms TAB key` lines")
    with contextlib.ExitStack() as stack:
        try:
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
    text, done, ended = _read(source, len(BOM_UTF8)).removeprefix(BOM_UTF8), 0, False
    fields = np.empty(2 * rows, dtype=np.int32)
    times = np.empty(rows, dtype=np.int64)
    while text or not ended:
        parsed, parsed_end, valid = _scan(np.frombuffer(text, dtype=np.uint8), fields, times)
        if not valid:
            raise _malformed(source, done + parsed + 1)
        if parsed == rows or (ended and parsed):
            yield ParsedLines(_keys(source, text, fields[: 2 * parsed], done), times[:parsed].copy())
            done += parsed
            text = text[parsed_end:]
            continue
        if len(text) - parsed_end > MAX_LINE_BYTES:
            raise ConfigurationError(
                f"{source.name}: line {done + parsed + 1}: over {MAX_LINE_BYTES:,} bytes; is this a text file?"
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
    """Return the keys of the text. `fields` has the start and the end of each key."""
    # The offsets of all keys are those of one array, in which every second string is a key.
    pieces = pa.StringArray.from_buffers(len(fields) - 1, pa.py_buffer(fields), pa.py_buffer(text))
    keys = pieces.take(pa.array(np.arange(0, len(fields), 2)))
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        invalid_row = next(row for row, key in enumerate(keys.cast(pa.binary()).to_pylist()) if not is_utf8(key))
        raise ConfigurationError(f"{source.name}: line {done + invalid_row + 1}: the key is not UTF-8") from None
    return keys


def _malformed(source: Source, line: int) -> ConfigurationError:
    return ConfigurationError(
        f"{source.name}: line {line}: is not `time_ms TAB key` or `time_ms TAB key TAB count`; "
        "time_ms and count are integers"
    )


@jit
def _parse_integer(text: NDArray[np.uint8], start: int) -> tuple[int, int]:
    """Parse an integer: return its value and the offset after it, or (0, `start`) if there is none."""
    offset = start
    negative = offset < len(text) and text[offset] == _MINUS
    if negative:
        offset += 1
    first_digit, value = offset, 0
    while offset < len(text) and _ZERO <= text[offset] <= _NINE and offset - first_digit <= _MAX_DIGITS:
        value = value * 10 + int(np.int64(text[offset])) - _ZERO
        offset += 1
    if offset == first_digit or offset - first_digit > _MAX_DIGITS:
        return 0, start
    return -value if negative else value, offset


@jit
def _scan(text: NDArray[np.uint8], fields: NDArray[np.int32], times: NDArray[np.int64]) -> tuple[int, int, bool]:
    """Parse lines until `times` is full. Return their number, the offset after them, and False before a malformed line.

    Writes the start and the end of each key to `fields`. Does not parse a last line without a line end.
    """
    row = offset = 0
    while row < len(times):
        end = offset
        while end < len(text) and text[end] != _NEWLINE:
            end += 1
        if end == len(text):
            break
        last = end - 1 if end > offset and text[end - 1] == _RETURN else end
        times[row], start = _parse_integer(text, offset)
        if start == offset or text[start] != _TAB:
            return row, offset, False
        key_end = start + 1
        while key_end < last and text[key_end] != _TAB:
            key_end += 1
        if key_end < last and (key_end + 1 == last or _parse_integer(text, key_end + 1)[1] != last):
            return row, offset, False
        fields[2 * row], fields[2 * row + 1] = start + 1, key_end
        row, offset = row + 1, end + 1
    return row, offset, True
