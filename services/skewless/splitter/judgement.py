"""Which records of a source partition count: those that can be read, whose time can be, and that are not late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.watermark import END_OF_TIME, SourceClock
from skewless.splitter.formats.base import Parsed

if TYPE_CHECKING:
    from skewless.settings import PipelineSettings

TOO_FAR_AHEAD = "time too far ahead of the clock"
"""The one reason of a dead letter that the wall clock decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRules:
    """How times of records are judged, all in ms."""

    lateness_ms: int
    max_future_ms: int
    earliest: int = 0
    latest: int = END_OF_TIME

    @classmethod
    def of(cls, settings: PipelineSettings) -> Self:
        """Tell the rules of a pipeline."""
        return cls(
            lateness_ms=settings.event_time.lateness_ms,
            max_future_ms=round(settings.event_time.max_future_s * 1000),
            earliest=settings.splitter.time.earliest,
            latest=settings.splitter.time.latest,
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be done with each record of a batch."""

    parsed: Parsed
    bad: Mapping[int, str]
    """Reason by index of the record, ascending."""
    good: NDArray[np.bool_]
    """One per record: not bad."""
    late: NDArray[np.bool_]
    """One per record: good, but late."""

    @property
    def wanted(self) -> NDArray[np.bool_]:
        """One per record: its tuples count."""
        return self.good & ~self.late

    @property
    def late_tuples(self) -> int:
        """How many tuples are late."""
        return int(np.count_nonzero(self.late[self.parsed.records]))

    def tuples(self) -> tuple[pa.StringArray, NDArray[np.int64], NDArray[np.int64]]:
        """Take the tuples that count: keys, values and times, in order."""
        parsed = self.parsed
        chosen = np.flatnonzero(self.wanted[parsed.records])
        keys = pa.array(parsed.keys, pa.string())
        values, times = parsed.values, parsed.times[parsed.records]
        if len(chosen) < len(values):
            keys, values, times = keys.take(pa.array(chosen)), values[chosen], times[chosen]
        return keys, values, times


def judge(parsed: Parsed, rules: TimeRules, clock: SourceClock, now: int, refused: Iterable[int] = ()) -> Judgement:
    """Judge the next records of a source partition by its clock, which goes on with the good ones.

    `now` is the wall clock's ms. `refused` are indexes of records that the stream once found too far ahead of its own.
    """
    bad = _bad(parsed, rules, now)
    for index in refused:
        bad.setdefault(index, TOO_FAR_AHEAD)
    good = np.ones(len(parsed.times), dtype=np.bool_)
    good[list(bad)] = False
    late = np.zeros(len(parsed.times), dtype=np.bool_)
    late[good] = clock.observe(parsed.times[good])
    return Judgement(parsed, dict(sorted(bad.items())), good, late)


def _bad(parsed: Parsed, rules: TimeRules, now: int) -> dict[int, str]:
    """Add to the records that cannot be read those whose time cannot be: one of these would close every window."""
    bad = dict(parsed.bad)
    readable = np.ones(len(parsed.times), dtype=np.bool_)
    readable[list(bad)] = False
    for wrong, reason in (
        (parsed.times < rules.earliest, "time before splitter.time.earliest"),
        (parsed.times > rules.latest, "time after splitter.time.latest"),
        (parsed.times > now + rules.max_future_ms, TOO_FAR_AHEAD),
    ):
        for index in np.flatnonzero(wrong & readable):
            bad.setdefault(int(index), reason)
    return bad
