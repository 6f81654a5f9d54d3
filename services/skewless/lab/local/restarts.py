"""Decides when to restart a process that ended. Pure: the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FIRST_DELAY_S = 0.2
"""Delay of the second restart in a row. The first one is at once, because results wait for it."""
MAX_DELAY_S = 10.0
STABLE_S = 60.0
"""After this time of running, the delay and the count of failures are reset."""
MAX_CONSECUTIVE_FAILURES = 8
CONFIGURATION = 2
"""Exit code of wrong use or settings."""
UNREACHABLE = 3
"""Exit code of a broker or store that did not answer, or that refused an operation."""


@dataclass(frozen=True)
class RestartDecision:
    """Decision about a process that ended. `restart_at` is the time of its next start."""

    action: Literal["finished", "restart", "give_up"]
    restart_at: float = 0.0


class RestartPolicy:
    """Exponential back-off of one process: none, 0.2 s, doubled at each exit up to 10 s, reset after 60 s of running.

    With `drain`, exit code 0 is final. So is the last of MAX_CONSECUTIVE_FAILURES failures, because the caller waits
    for the end of the run. Kills are not failures. Exit code 2 is final, because a restart would repeat the error. Exit
    code 3 is final too (a wrong address), unless the process has once run for 60 s: then a broker is down and will
    return. A process waits at least `connect_timeout_s` for a broker or a schema registry. So if it ends earlier, one
    of them or a store has refused an operation, and the last of MAX_CONSECUTIVE_FAILURES such ends is final. Every
    other exit code is a crash, including 70 (an uncaught exception).
    """

    def __init__(self, *, drain: bool, connect_timeout_s: float) -> None:
        self._drain = drain
        self._connect_timeout_s = connect_timeout_s
        self._started = 0.0
        self._delay_s = 0.0
        self._was_stable = False
        """True if the process has once run for STABLE_S."""
        self._consecutive_failures = 0
        self._consecutive_refusals = 0

    def started(self, now: float) -> None:
        """Record the start of the process at `now` (seconds)."""
        self._started = now

    def ended(self, code: int, now: float) -> RestartDecision:
        """Decide what to do after this exit code (negative: killed by that signal)."""
        ran_s = now - self._started
        if ran_s >= STABLE_S:
            self._was_stable = True
            self._delay_s = 0.0
            self._consecutive_failures = 0
        self._consecutive_failures += code > 0
        is_refused = code == UNREACHABLE and ran_s < self._connect_timeout_s
        self._consecutive_refusals = self._consecutive_refusals + 1 if is_refused else 0
        if code == 0 and self._drain:
            return RestartDecision("finished")
        if code == CONFIGURATION or (code == UNREACHABLE and not self._was_stable):
            return RestartDecision("give_up")
        failures = max(self._consecutive_failures if self._drain else 0, self._consecutive_refusals)
        if failures >= MAX_CONSECUTIVE_FAILURES:
            return RestartDecision("give_up")
        delay_s = self._delay_s
        self._delay_s = min(max(FIRST_DELAY_S, 2 * delay_s), MAX_DELAY_S)
        return RestartDecision("restart", now + delay_s)
