"""Text line by line: any file, or the Python standard library's own source, as records of words."""

from __future__ import annotations

import sysconfig
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from skewless.datasets import files
from skewless.datasets.base import DEFAULT_EVENT_RATE, Chunk, DatasetOptions, FixedRate
from skewless.splitter.settings import SplitterSettings

WORDS_EVENT_RATE = 500.0
"""Lines per second of event time: the standard library then spans 10 to 30 minutes, depending on its packaging."""
NOT_STDLIB = {"site-packages", "dist-packages"}


def lines(options: DatasetOptions) -> Iterator[Chunk]:
    """Every line of the input files that is not empty."""
    return _stamped(chain.from_iterable(map(files.blocks, options.input)), FixedRate.of(options, DEFAULT_EVENT_RATE))


def words(options: DatasetOptions) -> Iterator[Chunk]:
    """Each line of the installed standard library's source that is not blank; files that are not UTF-8 are left out."""
    return _stamped(map(_decodable_lines, sources()), FixedRate.of(options, WORDS_EVENT_RATE))


def sources() -> list[Path]:
    """List the standard library's source files, sorted by their path in it."""
    root = Path(sysconfig.get_path("stdlib"))
    found = (path for path in root.rglob("*.py") if not NOT_STDLIB & set(path.relative_to(root).parts))
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def splitter_settings() -> SplitterSettings:
    """Every word of a line is a key; longer runs of letters than 100 (encoded data) are cut."""
    return SplitterSettings.model_validate({"format": "text", "key": {"pattern": r"\w{1,100}"}})


def _decodable_lines(path: Path) -> list[bytes]:
    source = path.read_bytes().removeprefix(BOM_UTF8)
    try:
        source.decode()
    except UnicodeDecodeError:
        return []
    return [line for line in source.splitlines() if line.strip()]


def _stamped(blocks: Iterable[list[bytes]], clock: FixedRate) -> Iterator[Chunk]:
    first = 0
    for block in blocks:
        yield Chunk(block, clock.times(first, len(block)))
        first += len(block)
