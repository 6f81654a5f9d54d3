"""Decides when a stage commits. Pure: it takes the time and the progress and returns a decision.

The records that another stage writes arrive in bursts, one for each of its transactions. A stage that commits
just after a burst stays synchronous with that stage. So a record waits for about one commit interval in the whole
pipeline, instead of half an interval in every stage.
"""

from __future__ import annotations

import math

POLL_S = 0.02
"""Maximum wait for records while a batch is in flight or not committed, because the loop may ask for a commit."""
IDLE_POLL_S = 0.1
"""Maximum wait for records otherwise, and so the maximum delay of a stop. Each wait that ends costs CPU time."""
REST_S = 0.004
"""A burst is over when no record has arrived for this time. The markers of a transaction reach the partitions of a
topic one after another, within some milliseconds."""
GATHER_S = 0.05
"""Maximum time in which a poll collects records."""
LATEST = 1.5
"""Maximum number of intervals between commits, for a stage that always has records in flight. It exceeds 1, so that a
burst that takes slightly longer than an interval is not split into two commits."""


def gather_time_s(interval_s: float) -> float:
    """Return the time in which a poll of a stage without bursts collects records, for an interval between commits."""
    return min(GATHER_S, interval_s / 4)


class CommitPolicy:
    """Decides when the next commit is due; times are in seconds of any monotonic clock.

    A commit that writes is due at the earliest one interval after the previous one. It is due at the latest after
    `LATEST` intervals, or after one interval if the input does not arrive in `bursts`.
    """

    def __init__(self, interval_s: float, *, bursts: bool) -> None:
        # Without records, commits are due at the latest time too: they report idle partitions and move the committed
        # offsets over transaction markers.
        self._interval_s = interval_s
        self._latest_s = interval_s * (LATEST if bursts else 1.0)
        self._gather_s = 0.0 if bursts else gather_time_s(interval_s)
        self._wrote_at = -math.inf
        self._begun_at = -math.inf

    def begin(self, now: float) -> None:
        """Record that a commit begins, or that the stage starts: the time of the next commit counts from here."""
        self._begun_at = now

    def wrote(self) -> None:
        """Record that the last commit wrote records."""
        self._wrote_at = self._begun_at

    def due(self, now: float, *, progressed: bool, at_rest: bool) -> bool:
        """Return whether to commit now.

        `progressed`: a batch was processed since the last commit. `at_rest`: no record is in flight, and the last poll
        returned none.
        """
        if now - self._begun_at >= self._latest_s:
            return True
        return progressed and at_rest and now - self._wrote_at >= self._interval_s

    def wait_s(self, now: float, *, busy: bool) -> float:
        """Return the maximum wait for records; `busy`: something is in flight or not committed."""
        if busy:
            return min(POLL_S, max(REST_S, self._wrote_at + self._interval_s - now))
        return min(IDLE_POLL_S, max(REST_S, self._begun_at + self._latest_s - now))

    def gather_s(self, now: float) -> float:
        """Return how long a poll collects further records after the first one. A commit is not delayed by it.

        Records that arrive one by one would make many small batches, which cost more in this stage and in all later
        ones. Nothing that this stage writes is visible before its commit. A burst is complete when it arrives.
        """
        return min(self._gather_s, max(0.0, self._begun_at + self._latest_s - now))
