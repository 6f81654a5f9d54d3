"""Commits that are aborted again and again because they take longer than a transaction may."""

from __future__ import annotations

from skewless.errors import LimitError

MOST_ABORTS = 2
"""So many in a row end the process: the same records make the next one as large."""


class AbortStreak:
    """Counts transactions in a row that were aborted because writing their records took longer than the timeout."""

    def __init__(self, transaction_timeout_s: float) -> None:
        self._timeout_s = transaction_timeout_s
        self._aborts = 0

    def committed(self) -> None:
        """Begin again: a commit has passed."""
        self._aborts = 0

    def aborted(self, *, wrote_s: float, records: int, written_bytes: int) -> LimitError | None:
        """Take note of an abort; return the error that ends the process after the second one in a row.

        `wrote_s` is the time from the first record of the transaction to the last, without the time in which the
        broker took none: an abort by an outage says nothing about the size.
        """
        if wrote_s < self._timeout_s:
            return None
        self._aborts += 1
        if self._aborts < MOST_ABORTS:
            return None
        return LimitError(
            f"{self._aborts} transactions in a row took longer than transport.transaction_timeout_s "
            f"({self._timeout_s:g} s): the last one had {records:,} records ({written_bytes:,} bytes) and was written "
            f"in {wrote_s:.1f} s; raise the setting (at most the brokers' transaction.max.timeout.ms), lower "
            "transport.commit_interval_s, or share the work among more processes"
        )
