"""Reference count of a data set, computed without Kafka or any stage. Every grouping must produce these counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skewless.kafka.producer.bulk import RUN
from skewless.lab.datasets import RecordBatch
from skewless.lab.datasets.lateness import LatenessTracker
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import EventTimeRules

MAX_DIFFERENCES = 5

WindowCounts = Counter[tuple[int, str]]
"""Tuples by (start of the window in ms, key)."""


@dataclass
class ReferenceResult:
    """Counts of the tuples, and of the records that are not counted because they are late or unreadable."""

    counts: WindowCounts = field(default_factory=Counter)
    late: int = 0
    """Number of late tuples."""
    max_lateness_ms: int = 0
    """Allowed lateness with which no record is late."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """Number of unreadable records by reason."""

    @property
    def tuples(self) -> int:
        """Number of tuples that a pipeline must count."""
        return self.counts.total()

    @property
    def windows(self) -> list[int]:
        """Starts of all windows in ms, ascending."""
        return sorted({window for window, _ in self.counts})


class ReferenceCounter:
    """Counts tuples by window and key, without late records."""

    def __init__(self, parser: RecordParser, rules: EventTimeRules, window_ms: int, partitions: int) -> None:
        self._parser = parser
        self._rules = rules
        self._window_ms = window_ms
        self._partitions = partitions
        self._lateness = LatenessTracker(partitions)
        self.records = 0
        self.result = ReferenceResult()

    def add(self, batch: RecordBatch) -> None:
        """Count the next records."""
        parsed = self._parser.parse(RecordColumns.of_values(batch.values, batch.times))
        readable = np.ones(len(batch.values), dtype=np.bool_)
        readable[[index for index, _ in parsed.invalid]] = False
        in_time = readable & ~self._late(parsed.times, readable)
        self.result.unreadable.update(reason for _, reason in parsed.invalid)
        counted = in_time[parsed.records]
        self.result.late += len(counted) - int(counted.sum())
        windows = parsed.times[parsed.records] // self._window_ms * self._window_ms
        for window in np.unique(windows[counted]).tolist():
            rows = np.flatnonzero(counted & (windows == window)).tolist()
            keys = Counter(parsed.keys[row] for row in rows)
            self.result.counts.update({(window, key): count for key, count in keys.items()})
        self.records += len(batch.values)

    def _late(self, times: NDArray[np.int64], readable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which records are late, and update the maximum lateness."""
        late = np.zeros(len(times), dtype=np.bool_)
        partitions = (self.records + np.flatnonzero(readable)) // RUN % self._partitions
        lateness = self._lateness.add(partitions, times[readable], self._rules.deadlines)
        late[readable] = lateness > self._rules.lateness_ms
        self.result.max_lateness_ms = max(self.result.max_lateness_ms, int(lateness.max(initial=0)))
        return late


def differences(expected: WindowCounts, actual: WindowCounts) -> Iterable[str]:
    """Yield a line for each of the first MAX_DIFFERENCES windows and keys whose counts differ."""
    differing = sorted(cell for cell in expected.keys() | actual.keys() if expected[cell] != actual[cell])
    for window, key in differing[:MAX_DIFFERENCES]:
        yield f"window {window}, key {key!r}: {actual[window, key]:,} instead of {expected[window, key]:,}"
    if len(differing) > MAX_DIFFERENCES:
        yield f"and {len(differing) - MAX_DIFFERENCES:,} more"
