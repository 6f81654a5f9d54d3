"""Reading files of lines, plain or compressed (by their ending: .gz, .bz2, .lz4, .zst), in bounded memory."""

from __future__ import annotations

import contextlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from skewless.errors import ConfigurationError

BLOCK_BYTES = 512 * 1024
LONGEST_LINE = 1_000_000
"""Bytes; about what a broker takes as one record by default."""


def blocks(path: Path) -> Iterator[list[bytes]]:
    """Read a file's lines, without their ends, in lists of about BLOCK_BYTES; empty lines are left out.

    A byte order mark at the beginning of the file is not part of its first line. Raises ConfigurationError when the
    file cannot be read, or when it does not consist of lines.
    """
    with _explained(path), pa.input_stream(str(path), compression="detect") as stream:
        rest = stream.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
        while block := stream.read(BLOCK_BYTES):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > LONGEST_LINE:
                raise ConfigurationError(f"{path}: has a line of over {LONGEST_LINE:,} bytes; is this a text file?")
            yield [line for line in lines if line]
    if left := [line for line in rest.split(b"\n") if line]:  # several in a file of three bytes
        yield left


def count_lines(path: Path) -> int:
    """Count the lines that `blocks` gives."""
    return sum(map(len, blocks(path)))


def first_lines(path: Path, limit: int) -> list[bytes]:
    """Read the first lines; raises ConfigurationError when there are none."""
    for block in blocks(path):
        if block:
            return block[:limit]
    raise ConfigurationError(f"{path}: is empty; give a file with records")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what reading may raise into an error that names the file."""
    try:
        if not path.exists():
            raise ConfigurationError(f"{path}: no such file; check its name")
        if not path.is_file():
            raise ConfigurationError(f"{path}: is no regular file; name files, each by itself")
        yield
    except (OSError, pa.ArrowException) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
