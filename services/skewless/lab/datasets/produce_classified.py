"""Counts the records of a `produce` run that a pipeline would not count: unreadable records and late ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skewless.kafka.producer.bulk import partitions_of
from skewless.lab.datasets.lateness import LatenessTracker
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.utf8 import is_utf8
from skewless.parsing.validation import EventTimeRules


@dataclass
class ClassificationCounts:
    """Counts of unreadable and late records so far."""

    unreadable: Counter[str] = field(default_factory=Counter)
    """Number of unreadable records by reason."""
    late: int = 0
    """Number of records whose lateness exceeds the allowed lateness."""
    max_lateness_ms: int = 0
    """Allowed lateness with which no record is late."""

    def to_json(self) -> dict[str, int | float]:
        """Return the counts as a JSON object."""
        return {"unreadable": self.unreadable.total(), "late": self.late, "late_by_s": self.max_lateness_ms / 1000}


class InputClassifier:
    """Classifies the records of a run with the settings that parse them. The wall clock is not considered."""

    def __init__(self, splitter: ParsingSettings, rules: EventTimeRules, partitions: int) -> None:
        self._splitter = splitter
        self._rules = rules
        self._partitions = partitions
        self._lateness = LatenessTracker()
        self.result = ClassificationCounts()

    def add(
        self, first: int, values: Sequence[bytes], times: NDArray[np.int64], keys: Sequence[bytes] | None = None
    ) -> None:
        """Classify the next records. `first` is the index of the first one, `times` are the Kafka timestamps."""
        self.classify(first, *self._parse(values, times), keys)

    def classify(
        self, first: int, reasons: Mapping[int, str], times: NDArray[np.int64], keys: Sequence[bytes] | None
    ) -> NDArray[np.bool_]:
        """Classify the next records, which are parsed, and return which of them are neither unreadable nor late.

        `reasons` has the reason for each unreadable record (by its row), `times` are the event times.
        """
        self.result.unreadable.update(reasons.values())
        accepted = np.ones(len(times), dtype=np.bool_)
        accepted[list(reasons)] = False
        partitions = partitions_of(first, len(times), self._partitions, keys)
        lateness = self._lateness.add(partitions[accepted], times[accepted], self._rules.deadlines)
        accepted[accepted] = lateness <= self._rules.lateness_ms
        self.result.late += int(np.count_nonzero(lateness > self._rules.lateness_ms))
        self.result.max_lateness_ms = max(self.result.max_lateness_ms, int(lateness.max(initial=0)))
        return accepted

    @cached_property
    def _parser(self) -> RecordParser | None:
        """The parser of the records; None for text. Raises ConfigurationError if the user's function does not exist."""
        # It is made for the first records, because a run without records only creates the topic. The chart starts such
        # a run where the function is not installed.
        # Text is not parsed here: finding the words of a record takes longer than sending it.
        is_text = self._splitter.format.name == "text" and self._splitter.key.in_value
        return None if is_text else RecordParser(self._splitter)

    def _parse(self, values: Sequence[bytes], times: NDArray[np.int64]) -> tuple[dict[int, str], NDArray[np.int64]]:
        """Return the reason for each unreadable record (by its row), and the event times of all records."""
        if self._parser is None:
            return {row: "not UTF-8" for row, value in enumerate(values) if not is_utf8(value)}, times
        parsed = self._parser.parse(RecordColumns.of_values(values, times))
        return dict(parsed.invalid), parsed.times


def input_warnings(unreadable: Counter[str], late: int, unit: str, lateness_ms: int, remedy: str) -> Iterator[str]:
    """Yield one line for unreadable records and one for late records or tuples (`unit`), if there are any.

    `lateness_ms` is the allowed lateness with which none is late, `remedy` says how to make records readable.
    """
    if unreadable:
        (reason, count), *other_reasons = unreadable.most_common()
        share = f"{count:,} of them: " if other_reasons else ""
        yield f"unreadable records: {unreadable.total():,} ({share}{reason}), they go to dead-letters: {remedy}"
    if late:
        yield (
            f"late {unit}: {late:,}, they go to late: to count them, set event_time.allowed_lateness_s to "
            f"{lateness_ms / 1000:.15g} or more"
        )
