from __future__ import annotations

from skewless.engine.consecutive_timeouts import MAX_ABORTS, ConsecutiveTimeouts
from skewless.errors import LimitError


def aborted(timeouts: ConsecutiveTimeouts, wrote_s: float) -> LimitError | None:
    return timeouts.aborted(wrote_s=wrote_s, records=1_500_000, written_bytes=200_000_000)


def slow(timeouts: ConsecutiveTimeouts) -> list[LimitError | None]:
    """Let one slow abort fewer happen than end the process."""
    return [aborted(timeouts, 16.0) for _ in range(MAX_ABORTS - 1)]


def test_consecutive_timeouts_last_slow_abort_in_a_row_ends_with_the_setting_and_the_size() -> None:
    timeouts = ConsecutiveTimeouts(15.0)
    assert slow(timeouts) == [None] * 3
    error = aborted(timeouts, 17.25)
    assert isinstance(error, LimitError)
    assert "transport.transaction_timeout_s (15 s)" in str(error)
    assert "1,500,000 records (200,000,000 bytes) and was written in 17.2 s" in str(error)
    assert error.exit_code == 3


def test_consecutive_timeouts_commit_between_two_slow_aborts_resets_the_count() -> None:
    timeouts = ConsecutiveTimeouts(15.0)
    assert slow(timeouts) == [None] * 3
    timeouts.committed()
    assert slow(timeouts) == [None] * 3
    assert aborted(timeouts, 16.0) is not None


def test_consecutive_timeouts_aborts_for_other_reasons_neither_count_nor_reset() -> None:
    timeouts = ConsecutiveTimeouts(15.0)
    assert [aborted(timeouts, wrote_s) for wrote_s in (0.1, 14.9, 16.0, 0.1, 16.0, 16.0, 0.1)] == [None] * 7
    assert aborted(timeouts, 16.0) is not None
