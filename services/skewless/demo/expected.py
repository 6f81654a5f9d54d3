"""The answer counted on its own, without Kafka or any stage: what every grouping must come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skewless.datasets import Chunk
from skewless.datasets.lateness import Lateness
from skewless.splitter.formats import Format
from skewless.transport.sender import RUN

Cells = Counter[tuple[int, str]]
"""Tuples by (start of the window in ms, key)."""


@dataclass
class Expected:
    """What is counted, and what is not because it is late or cannot be read."""

    cells: Cells = field(default_factory=Counter)
    late: int = 0
    """Tuples."""
    behind_ms: int = 0
    """By how much the latest of them is older than the newest record before it in its partition."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """Records by the reason."""

    @property
    def tuples(self) -> int:
        """Number of tuples that must be counted."""
        return self.cells.total()

    @property
    def windows(self) -> list[int]:
        """Starts of all windows, ascending."""
        return sorted({window for window, _ in self.cells})


class Counting:
    """Counts the tuples of chunks. What is older than a record before it in its source partition is late: left out."""

    def __init__(self, record_format: Format, window_ms: int, partitions: int) -> None:
        self._format = record_format
        self._window_ms = window_ms
        self._partitions = partitions
        self._lateness = Lateness(partitions)
        self.records = 0
        self.result = Expected()

    def add(self, chunk: Chunk) -> None:
        """Count the next records."""
        parsed = self._format.parse(chunk.values, chunk.times)
        readable = np.ones(len(chunk.values), dtype=np.bool_)
        readable[[index for index, _ in parsed.bad]] = False
        in_time = readable & ~self._late(parsed.times, readable)
        self.result.unreadable.update(reason for _, reason in parsed.bad)
        counted = in_time[parsed.records]
        self.result.late += len(counted) - int(counted.sum())
        windows = parsed.times[parsed.records] // self._window_ms * self._window_ms
        for window in np.unique(windows[counted]).tolist():
            rows = np.flatnonzero(counted & (windows == window)).tolist()
            keys = Counter(parsed.keys[row] for row in rows)
            self.result.cells.update({(window, key): count for key, count in keys.items()})
        self.records += len(chunk.values)

    def _late(self, times: NDArray[np.int64], readable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        late = np.zeros(len(times), dtype=np.bool_)
        partitions = (self.records + np.flatnonzero(readable)) // RUN % self._partitions
        behind = self._lateness.add(partitions, times[readable])
        late[readable] = behind > 0
        self.result.behind_ms = max(self.result.behind_ms, int(behind.max(initial=0)))
        return late


def differences(expected: Cells, found: Cells) -> Iterable[str]:
    """Name the first few windows and keys whose counts differ."""
    wrong = sorted(cell for cell in expected.keys() | found.keys() if expected[cell] != found[cell])
    for window, key in wrong[:5]:
        yield f"window {window}, key {key!r}: {found[window, key]:,} instead of {expected[window, key]:,}"
    if len(wrong) > 5:
        yield f"and {len(wrong) - 5:,} more"
