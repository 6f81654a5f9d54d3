"""Logs that a process waits for brokers: once when the wait begins, and once when it ends."""

from __future__ import annotations

import logging
import re
import time

MAX_REASONS = 5
"""Maximum number of different reasons that are logged in one outage."""
_NUMBERS = re.compile(r"[0-9.]+")


class Outage:
    """The current wait for brokers, if there is one. Repeated reasons are logged once."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._reasons: set[str] = set()
        self._since = 0.0

    @property
    def waiting(self) -> bool:
        """Whether a warning was logged since the last success."""
        return bool(self._reasons)

    def warn(self, reason: str, kind: str | None = None) -> None:
        """Log a reason, unless one of its kind was logged since the last success."""
        # By default, messages that differ in numbers only (ports, times) are of one kind.
        kind = kind or _NUMBERS.sub("#", reason)
        if not self._reasons:
            self._since = time.monotonic()
        if kind in self._reasons or len(self._reasons) >= MAX_REASONS:
            return
        self._reasons.add(kind)
        self._log.warning("%s", reason)

    def over(self) -> None:
        """Record a success: it ends the outage."""
        if self._reasons:
            self._log.info("brokers answer again, after %.1f s", time.monotonic() - self._since)
            self._reasons.clear()
