"""When a process that ended is started again: pure, the caller says what time it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
STABLE_S = 60.0
MOST_FAILURES = 8
CONFIGURATION = 2
UNREACHABLE = 3


@dataclass(frozen=True)
class Verdict:
    """What to do about a process that ended; `at` is the time of its next start."""

    action: Literal["finished", "restart", "give_up"]
    at: float = 0.0


class Restarts:
    """Back-off of one process: 0.2 s, doubled by each end up to 10 s, and 0.2 s again after 60 s of running.

    With `drain` an end with 0 is final, and so is the last of MOST_FAILURES in a row, kills not counted: somebody waits
    for the run's end. Exit code 2 is a mistake that a restart repeats; 3 is one too (a wrong
    address) unless the process has once run for 60 s: then a broker is down that will come back. Every other exit code
    is a crash, among them 70 (an uncaught exception).
    """

    def __init__(self, *, drain: bool) -> None:
        self._drain = drain
        self._started = 0.0
        self._delay_s = FIRST_DELAY_S
        self._proven = False
        self._failures = 0
        """In a row, none of them after 60 s of running."""

    def started(self, now: float) -> None:
        """Note that the process was started; `now` in seconds."""
        self._started = now

    def ended(self, code: int, now: float) -> Verdict:
        """Decide about an end with this exit code (negative: killed by that signal)."""
        if now - self._started >= STABLE_S:
            self._proven = True
            self._delay_s = FIRST_DELAY_S
            self._failures = 0
        self._failures += code > 0
        if code == 0 and self._drain:
            return Verdict("finished")
        if code == CONFIGURATION or (code == UNREACHABLE and not self._proven):
            return Verdict("give_up")
        if self._drain and self._failures >= MOST_FAILURES:
            return Verdict("give_up")
        delay_s = self._delay_s
        self._delay_s = min(2 * delay_s, LONGEST_DELAY_S)
        return Verdict("restart", now + delay_s)
