"""Reads files of lines, plain or compressed (by extension: .gz, .bz2, .lz4, .zst), in bounded memory."""

from __future__ import annotations

import contextlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from skewless.algorithms.record_size import MAX_LINE_BYTES
from skewless.errors import ConfigurationError

BLOCK_BYTES = 512 * 1024


def blocks(path: Path) -> Iterator[list[bytes]]:
    """Yield a file's lines, without line ends, in lists of about BLOCK_BYTES. Empty lines are skipped.

    A byte order mark at the beginning of the file is not part of its first line. Raises ConfigurationError when the
    file cannot be read, or when a line is longer than MAX_LINE_BYTES.
    """
    with _wrap_read_errors(path), pa.input_stream(str(path), compression="detect") as stream:
        rest = stream.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
        while block := stream.read(BLOCK_BYTES):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > MAX_LINE_BYTES:
                raise ConfigurationError(f"{path}: has a line of over {MAX_LINE_BYTES:,} bytes; is this a text file?")
            yield [line for line in lines if line]
    # A file of up to three bytes is read with the byte order mark, so the rest may hold several lines.
    if last_lines := [line for line in rest.split(b"\n") if line]:
        yield last_lines


def count_lines(path: Path) -> int:
    """Return the number of lines that `blocks` yields."""
    return sum(map(len, blocks(path)))


def first_lines(path: Path, limit: int) -> list[bytes]:
    """Return at most `limit` of the first lines. Raises ConfigurationError if there are none."""
    for block in blocks(path):
        if block:
            return block[:limit]
    raise ConfigurationError(f"{path}: is empty; give a file with records")


@contextlib.contextmanager
def _wrap_read_errors(path: Path) -> Iterator[None]:
    """Raise ConfigurationError with the file's name instead of the errors of reading."""
    try:
        if not path.exists():
            raise ConfigurationError(f"{path}: no such file; check its name")
        if not path.is_file():
            raise ConfigurationError(f"{path}: is not a regular file; name each file separately")
        yield
    except (OSError, pa.ArrowException) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
