"""Which of the records that `produce` sends a pipeline would leave out: those it cannot read, and late ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skewless.datasets.lateness import Lateness
from skewless.splitter.formats import create_format
from skewless.splitter.settings import SplitterSettings
from skewless.transport.sender import RUN


@dataclass
class Judged:
    """What was counted so far."""

    unreadable: Counter[str] = field(default_factory=Counter)
    """Records by the reason for which they cannot be read."""
    late: int = 0
    """Records that are older than the newest before them in their partition, by more than is allowed."""
    behind_ms: int = 0
    """By how much the latest of them is older."""

    def facts(self) -> dict[str, int | float]:
        """Return everything for a JSON object."""
        return {"unreadable": self.unreadable.total(), "late": self.late, "late_by_s": self.behind_ms / 1000}


class Judging:
    """Judges the records of a run by the settings that read them; the wall clock plays no part."""

    def __init__(self, splitter: SplitterSettings, lateness_ms: int, partitions: int) -> None:
        self._format = None if splitter.format == "text" else create_format(splitter)
        self._lateness_ms = lateness_ms
        self._partitions = partitions
        self._lateness = Lateness(partitions)
        self.result = Judged()

    def add(self, first: int, values: Sequence[bytes], times: NDArray[np.int64]) -> None:
        """Judge the next records; `first` is the number of the first one in the run, `times` are Kafka's timestamps."""
        bad, times = self._read(values, times)
        self.result.unreadable.update(bad.values())
        good = np.ones(len(values), dtype=np.bool_)
        good[list(bad)] = False
        partitions = (first + np.flatnonzero(good)) // RUN % self._partitions
        behind = self._lateness.add(partitions, times[good])
        self.result.late += int(np.count_nonzero(behind > self._lateness_ms))
        self.result.behind_ms = max(self.result.behind_ms, int(behind.max(initial=0)))

    def _read(self, values: Sequence[bytes], times: NDArray[np.int64]) -> tuple[dict[int, str], NDArray[np.int64]]:
        """Return the reasons of the records that cannot be read, and the event times of all."""
        if self._format is None:  # finding the words of a text takes longer than sending it
            return {at: "not UTF-8" for at, value in enumerate(values) if not _is_utf8(value)}, times
        parsed = self._format.parse(values, times)
        return dict(parsed.bad), parsed.times


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def notes(unreadable: Counter[str], late: int, what: str, behind_ms: int, remedy: str) -> Iterator[str]:
    """Yield a line for unreadable records and one for late records or tuples (`what`), if there are any."""
    if unreadable:
        (reason, most), *others = unreadable.most_common()
        share = f"{most:,} of them: " if others else ""
        yield f"unreadable records: {unreadable.total():,} ({share}{reason}), they go to dead-letters: {remedy}"
    if late:
        yield (
            f"late {what}: {late:,}, up to {behind_ms / 1000:g} s behind the newest record before them in their "
            f"partition: to count them, set event_time.allowed_lateness_s to {behind_ms / 1000:g} or more"
        )
