"""Classifies source records as accepted, late or invalid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkGenerator
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.errors import UnknownSchemaError
from skewless.parsing.formats.base import ParsedBatch

NO_TIME = np.iinfo(np.int64).min
"""Event time of a record that does not meet the conditions, and whose time cannot be read."""
TOO_FAR_AHEAD = "time too far ahead of the clock"
NOT_FINAL = (TOO_FAR_AHEAD, UnknownSchemaError.REASON)
"""Ends of the dead-letter reasons of records that may be valid when they are read again: the clock and the registry
may accept them then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeRules:
    """Rules for the event times of records. All values are in ms."""

    lateness_ms: int
    max_ahead_ms: int
    earliest: int = 0
    latest: int = MAX_WATERMARK
    windows: WindowAssigner | None = None
    """Windows whose end makes a tuple late. None: its own event time does."""

    def deadlines(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each event time its deadline: a tuple is late if this is below the watermark before its record."""
        return times if self.windows is None else self.windows.first_ends(times) - 1


@dataclass(frozen=True, slots=True)
class RecordClassification:
    """Classification of the records of a batch."""

    parsed: ParsedBatch
    invalid: Mapping[int, str]
    """Reasons of invalid records by index, ascending."""
    valid: NDArray[np.bool_]
    """Per record: whether it is not invalid and has an event time. Only filtered records may have none."""
    late: NDArray[np.bool_]
    """Per record: whether it is valid but late."""
    filtered: int = 0
    """Number of records that are not invalid, and do not meet the conditions of the pipeline."""

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """Per record: whether it is valid and not late."""
        return self.valid & ~self.late

    @property
    def late_tuples(self) -> int:
        """Number of late tuples."""
        return int(np.count_nonzero(self.late[self.parsed.records]))

    @property
    def records_of_tuples(self) -> NDArray[np.int32]:
        """Per tuple of `tuples`: index of its record."""
        records: NDArray[np.int32] = self.parsed.records[self.accepted[self.parsed.records]]
        return records

    def max_times_before(self, previous: int | None) -> NDArray[np.int64]:
        """Return for each record the largest event time of the valid records before it; NO_TIME if there is none.

        `previous` is that of the records before the batch.
        """
        floor = np.array([NO_TIME if previous is None else previous], dtype=np.int64)
        times = np.where(self.valid, self.parsed.times, floor)
        running_max: NDArray[np.int64] = np.maximum.accumulate(np.concatenate((floor, times)))[:-1]
        return running_max

    def tuples(self) -> tuple[pa.StringArray, Mapping[str, pa.Array], NDArray[np.int64]]:
        """Return keys, values by name, and times of the tuples of accepted records, in order."""
        parsed = self.parsed
        accepted = np.flatnonzero(self.accepted[parsed.records])
        keys = pa.array(parsed.keys, pa.string())
        values, times = parsed.values, parsed.times[parsed.records]
        if len(accepted) < len(keys):
            rows = pa.array(accepted)
            keys, times = keys.take(rows), times[accepted]
            values = {name: array.take(rows) for name, array in values.items()}
        return keys, values, times


def classify(
    parsed: ParsedBatch,
    rules: EventTimeRules,
    generator: WatermarkGenerator,
    now: int,
    refused: Mapping[int, str] | None = None,
) -> RecordClassification:
    """Classify the next records of a source partition. The valid ones advance `generator`, its watermark generator.

    `now` is the wall-clock time in ms. `refused` has the reasons of records that the live run has refused, by index.
    """
    invalid = {**(refused or {}), **_invalid(parsed, rules, now)}
    valid = np.ones(len(parsed.times), dtype=np.bool_)
    valid[list(invalid)] = False
    filtered = parsed.filtered[valid[parsed.filtered]]
    valid[filtered[_is_out_of_bounds(parsed.times[filtered], rules)]] = False
    late = np.zeros(len(parsed.times), dtype=np.bool_)
    late[valid] = generator.observe(parsed.times[valid], rules.deadlines)
    return RecordClassification(parsed, dict(sorted(invalid.items())), valid, late, len(filtered))


def _invalid(parsed: ParsedBatch, rules: EventTimeRules, now: int) -> dict[int, str]:
    """Return the reasons of records that cannot be parsed, or whose event time is out of bounds, by index."""
    # One record with a wrong time far ahead would close every window.
    invalid = dict(parsed.invalid)
    is_parsed = np.ones(len(parsed.times), dtype=np.bool_)
    is_parsed[list(invalid)] = False
    # The time of a filtered record may be anything. But the clock's decision must be in the stream, for the audit.
    is_parsed[parsed.filtered[_is_out_of_bounds(parsed.times[parsed.filtered], rules)]] = False
    for is_out_of_bounds, reason in (
        (parsed.times < rules.earliest, "time before splitter.time.earliest"),
        (parsed.times > rules.latest, "time after splitter.time.latest"),
        (parsed.times > now + rules.max_ahead_ms, TOO_FAR_AHEAD),
    ):
        for index in np.flatnonzero(is_out_of_bounds & is_parsed):
            invalid.setdefault(int(index), reason)
    return invalid


def _is_out_of_bounds(times: NDArray[np.int64], rules: EventTimeRules) -> NDArray[np.bool_]:
    return (times < rules.earliest) | (times > rules.latest)
