"""Limits the rate of sent records: by records per second, by the recorded pace times a factor, or by both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class RateLimiter:
    """Computes how many records may be sent. The caller passes `now`, in seconds of a monotonic clock.

    `rate` is in records per second, `speed` in seconds of event time per second. Without both there is no limit.
    """

    def __init__(self, now: float, *, rate: float | None = None, speed: float | None = None) -> None:
        self._start = now
        self._rate = rate
        self._speed = speed
        self._first_ms: int | None = None
        self._sent = 0

    def acquire(self, now: float, times: NDArray[np.int64]) -> int:
        """Return how many of the next records may be sent at `now` and count them as sent; 0: try again later.

        `times` are the event times (ms) of the next records.
        """
        allowed = len(times)
        elapsed = now - self._start
        if self._rate is not None:
            allowed = min(allowed, int(elapsed * self._rate) - self._sent)
        if self._speed is not None and len(times):
            allowed = min(allowed, self._due(elapsed * self._speed, times))
        allowed = max(0, allowed)
        self._sent += allowed
        return allowed

    def _due(self, elapsed_s: float, times: NDArray[np.int64]) -> int:
        """Return the number of leading records whose event time has been reached after `elapsed_s` of event time."""
        if self._first_ms is None:
            self._first_ms = int(times[0])
        ahead = times > self._first_ms + elapsed_s * 1000
        return int(ahead.argmax()) if ahead.any() else len(times)
