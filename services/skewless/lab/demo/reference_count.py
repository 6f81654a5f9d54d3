"""Reference count of a data set, computed without Kafka or any stage. Every grouping must produce these counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from skewless.lab.datasets import RecordBatch
from skewless.lab.datasets.produce_classified import ClassificationCounts, InputClassifier
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import EventTimeRules
from skewless.wire.window_counts import WindowCounts


@dataclass
class ReferenceResult:
    """Counts of the tuples, and of the records that are not counted because they are late or unreadable."""

    counts: WindowCounts = field(default_factory=Counter)
    late: int = 0
    """Number of late tuples."""
    classified: ClassificationCounts = field(default_factory=ClassificationCounts)

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

    def __init__(self, splitter: ParsingSettings, rules: EventTimeRules, window_ms: int, partitions: int) -> None:
        self._parser = RecordParser(splitter)
        self._classifier = InputClassifier(splitter, rules, partitions)
        self._window_ms = window_ms
        self.records = 0
        self.result = ReferenceResult(classified=self._classifier.result)

    def add(self, batch: RecordBatch) -> None:
        """Count the next records."""
        parsed = self._parser.parse(RecordColumns.of_values(batch.values, batch.times))
        accepted = self._classifier.classify(self.records, dict(parsed.invalid), parsed.times, batch.keys)
        counted = accepted[parsed.records]
        self.result.late += len(counted) - int(counted.sum())
        windows = parsed.times[parsed.records] // self._window_ms * self._window_ms
        for window in np.unique(windows[counted]).tolist():
            rows = np.flatnonzero(counted & (windows == window)).tolist()
            keys = Counter(parsed.keys[row] for row in rows)
            self.result.counts.update({(window, key): count for key, count in keys.items()})
        self.records += len(batch.values)
