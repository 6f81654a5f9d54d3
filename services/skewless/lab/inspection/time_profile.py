"""TimeProfile: span and disorder of one time of the records, and the share of records that exceed each lateness."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.lab.datasets.lateness import LatenessTracker

LATENESS_S = (0, 1, 5, 10, 30, 60, 300, 600, 3_600, 21_600, 86_400, 604_800)
"""Values of `event_time.allowed_lateness_s` that are compared."""
RESOLUTIONS_MS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000, "ms": 1}
"""Lengths of the spans of which times may be whole numbers, in descending order."""
EARLY_SHARE = 0.05
"""Share of a batch whose times may be so early by mistake."""
TOLERATED_SHARE = 0.001
"""Largest share of records whose disorder may exceed the recommended lateness."""


class TimeProfile:
    """Measures the disorder in each partition: the newest time before a record minus its own time.

    A record whose disorder is at most the allowed lateness is never late. Others are late if a window has closed.
    """

    def __init__(self) -> None:
        self._lateness = LatenessTracker()
        self._late = np.zeros(len(LATENESS_S) + 1, dtype=np.int64)
        self._max_disorder_by_partition: dict[int, int] = {}
        self.first_ms: int | None = None
        """Smallest time; None without records."""
        self._early: int | None = None
        self.records = 0
        """Number of records with a time."""
        self._divisor_ms = 0

    def add(self, partition: int, times: NDArray[np.int64]) -> None:
        """Add the times (ms) of a partition's next records, in offset order."""
        if not len(times):
            return
        disorder = self._lateness.add_to(partition, times)
        # With side="left", a disorder equal to a lateness counts as not late for it.
        classes = np.searchsorted(np.array(LATENESS_S) * 1000, disorder, side="left")
        self._late += np.bincount(classes, minlength=len(self._late))
        largest = self._max_disorder_by_partition.get(partition, 0)
        self._max_disorder_by_partition[partition] = max(largest, int(disorder.max()))
        first = int(times.min())
        self.first_ms = first if self.first_ms is None else min(first, self.first_ms)
        early = int(np.quantile(times, EARLY_SHARE, method="lower"))
        self._early = early if self._early is None else min(early, self._early)
        self.records += len(times)
        self._divisor_ms = int(np.gcd.reduce(times, initial=self._divisor_ms))

    def to_json(self) -> dict[str, Any]:
        """Return span, disorder, and by lateness the share of records that may be late, because they exceed it.

        `early_ms` is the first time without the few that may be mistakes: the least quantile of any batch.
        `recommended_lateness_s` is None if none is enough.
        """
        late = self.records - np.cumsum(self._late)[: len(LATENESS_S)]
        late_share = (late / max(1, self.records)).tolist()
        sufficient = [
            lateness for lateness, share in zip(LATENESS_S, late_share, strict=True) if share <= TOLERATED_SHARE
        ]
        return {
            "records": self.records,
            "first_ms": self.first_ms,
            "early_ms": self._early,
            "last_ms": max(self._lateness.newest_ms.values(), default=None),
            "resolution": next(name for name, ms in RESOLUTIONS_MS.items() if self._divisor_ms % ms == 0),
            "max_disorder_ms": max(self._max_disorder_by_partition.values(), default=0),
            "max_disorder_ms_by_partition": {
                str(partition): value for partition, value in sorted(self._max_disorder_by_partition.items())
            },
            "late": [
                {"allowed_lateness_s": lateness, "records": count, "share": share}
                for lateness, count, share in zip(LATENESS_S, late.tolist(), late_share, strict=True)
            ],
            "recommended_lateness_s": sufficient[0] if sufficient else None,
        }
