"""Counts the records of a `produce` run that a pipeline would not count: unreadable records and late ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.join.window_join import Side
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.producer.bulk import partitions_of
from skewless.lab.datasets.lateness import LatenessTracker
from skewless.parsing.prevalidate import is_utf8
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import EventTimeRules
from skewless.stages.join.settings import SPAN_SETTINGS


@dataclass(frozen=True)
class InputRules:
    """Rules by which a pipeline reads an input, and what becomes of late records."""

    parsing: ParsingSettings
    event_times: EventTimeRules
    section: str = "splitter"
    """Section of the settings that describes the records."""
    late_topic: str = "late"
    span_setting: str = "event_time.allowed_lateness_s"
    """Setting that contains the allowed lateness."""
    span_ms: int = 0
    """What the setting contains in addition."""

    def late_remedy(self, lateness_ms: int) -> str:
        """Return what becomes of late records, and the setting with which none is late. It allows `lateness_ms`."""
        seconds = (self.span_ms + lateness_ms) / 1000
        return f"they go to {self.late_topic}: to accept them, set {self.span_setting} to {seconds:.15g} or more"


def input_rules(settings: PipelineSettings, name: str) -> InputRules:
    """Return the rules of an input of a pipeline, which the topology names."""
    if name in settings.sides:
        side, join = Side(name), settings.joined.rules()
        return InputRules(
            settings.sides[name].parsing,
            EventTimeRules(lateness_ms=join.disorder_ms(side), max_ahead_ms=0),
            f"join.{name}",
            "join-late",
            SPAN_SETTINGS[side],
            join.apart_ms,
        )
    if name == "events" and settings.enrich is not None:
        # The enricher passes late records on.
        return InputRules(settings.enrich.records, EventTimeRules(lateness_ms=MAX_WATERMARK, max_ahead_ms=0), "enrich")
    return InputRules(settings.splitter, settings.event_time_rules())


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
        self.classify(first, *self._parse(values, times, keys), keys)

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

    def _parse(
        self, values: Sequence[bytes], times: NDArray[np.int64], keys: Sequence[bytes] | None
    ) -> tuple[dict[int, str], NDArray[np.int64]]:
        """Return the reason for each unreadable record (by its row), and the event times of all records."""
        if self._parser is None:
            return {row: "not UTF-8" for row, value in enumerate(values) if not is_utf8(value)}, times
        parsed = self._parser.parse(RecordColumns.of_values(values, times, keys))
        return dict(parsed.invalid), parsed.times


def input_warnings(unreadable: Counter[str], remedy: str, late: int, unit: str, late_remedy: str) -> Iterator[str]:
    """Yield one line for unreadable records and one for late records or tuples (`unit`), if there are any.

    `remedy` says how to make records readable, `late_remedy` is that of `InputRules`.
    """
    if unreadable:
        (reason, count), *other_reasons = unreadable.most_common()
        share = f"{count:,} of them: " if other_reasons else ""
        yield f"unreadable records: {unreadable.total():,} ({share}{reason}), they go to dead-letters: {remedy}"
    if late:
        yield f"late {unit}: {late:,}, {late_remedy}"
