"""Detects commits that are aborted repeatedly because writing their records exceeds the transaction timeout."""

from __future__ import annotations

from skewless.errors import LimitError

MAX_ABORTS = 4
"""Consecutive aborts that end the process. The output gives each transaction more time than the one before."""


class ConsecutiveTimeouts:
    """Counts consecutive transactions that were aborted because writing their records took longer than the timeout."""

    def __init__(self, transaction_timeout_s: float) -> None:
        self._timeout_s = transaction_timeout_s
        self._aborts = 0

    def committed(self) -> None:
        """Reset the count after a successful commit."""
        self._aborts = 0

    def aborted(self, *, wrote_s: float, records: int, written_bytes: int) -> LimitError | None:
        """Count an abort and return the error that ends the process after MAX_ABORTS in a row, otherwise None.

        `wrote_s` is the time for which the transaction's records were written, without the time for which the broker
        accepted none: an abort because of an outage is not caused by the size.
        """
        if wrote_s < self._timeout_s:
            return None
        self._aborts += 1
        if self._aborts < MAX_ABORTS:
            return None
        return LimitError(
            f"{self._aborts} transactions in a row took longer than transport.transaction_timeout_s "
            f"({self._timeout_s:g} s): the last one had {records:,} records ({written_bytes:,} bytes) and was written "
            f"in {wrote_s:.1f} s; raise the setting (at most the brokers' transaction.max.timeout.ms), lower "
            "transport.commit_interval_s, or share the work among more processes"
        )
