"""How fast records may go: a limit of records per second, and the recorded pace times a factor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Pacer:
    """Says how many records may go by now. `now` (seconds of any clock that only goes forward) is passed in.

    `rate` is records per second; `speed` is seconds of event time per second. Without both there is no limit.
    """

    def __init__(self, now: float, *, rate: float | None = None, speed: float | None = None) -> None:
        self._start = now
        self._rate = rate
        self._speed = speed
        self._first_ms: int | None = None
        self._sent = 0

    def take(self, now: float, times: NDArray[np.int64]) -> int:
        """Take as many of the next records, of event times `times` (ms), as may go at `now`; 0: wait a little."""
        count = len(times)
        elapsed = now - self._start
        if self._rate is not None:
            count = min(count, int(elapsed * self._rate) - self._sent)
        if self._speed is not None and len(times):
            count = min(count, self._due(elapsed * self._speed, times))
        count = max(0, count)
        self._sent += count
        return count

    def _due(self, elapsed_s: float, times: NDArray[np.int64]) -> int:
        """Count the leading records that are not ahead of event time."""
        if self._first_ms is None:
            self._first_ms = int(times[0])
        ahead = times > self._first_ms + elapsed_s * 1000
        return int(ahead.argmax()) if ahead.any() else len(times)
