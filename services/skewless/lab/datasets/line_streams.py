"""Text datasets, one record per line: any text file, or the source of the Python standard library."""

from __future__ import annotations

import sysconfig
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from skewless.lab.datasets import data_files
from skewless.lab.datasets.base import DEFAULT_EVENT_RATE, DatasetOptions, FixedRate, RecordBatch
from skewless.stages.splitter.settings import SplitterSettings

WORDS_EVENT_RATE = 500.0
"""Lines per second of event time. The standard library then spans 10 to 30 minutes, depending on its packaging."""
NOT_STDLIB = {"site-packages", "dist-packages"}


def lines(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Yield every line of the input files that is not empty."""
    return _with_times(
        chain.from_iterable(map(data_files.blocks, options.input)), FixedRate.of(options, DEFAULT_EVENT_RATE)
    )


def words(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Yield every line of the installed standard library's source that is not blank. Skips files that are not UTF-8."""
    return _with_times(map(_decodable_lines, sources()), FixedRate.of(options, WORDS_EVENT_RATE))


def sources() -> list[Path]:
    """Return the source files of the standard library, sorted by their path in it."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = (path for path in root.rglob("*.py") if not NOT_STDLIB & set(path.relative_to(root).parts))
    return sorted(paths, key=lambda path: path.relative_to(root).as_posix())


def splitter_settings() -> SplitterSettings:
    """Return settings with every word of a line as a key. Words of over 100 letters (encoded data) are split."""
    return SplitterSettings.model_validate({"format": "text", "key": {"pattern": r"\w{1,100}"}})


def _decodable_lines(path: Path) -> list[bytes]:
    source = path.read_bytes().removeprefix(BOM_UTF8)
    try:
        source.decode()
    except UnicodeDecodeError:
        return []
    return [line for line in source.splitlines() if line.strip()]


def _with_times(blocks: Iterable[list[bytes]], clock: FixedRate) -> Iterator[RecordBatch]:
    first = 0
    for block in blocks:
        yield RecordBatch(block, clock.times(first, len(block)))
        first += len(block)
