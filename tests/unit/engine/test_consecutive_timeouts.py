from __future__ import annotations

from skewless.engine.consecutive_timeouts import ConsecutiveTimeouts
from skewless.errors import LimitError


def aborted(timeouts: ConsecutiveTimeouts, wrote_s: float) -> LimitError | None:
    return timeouts.aborted(wrote_s=wrote_s, records=1_500_000, written_bytes=200_000_000)


def test_second_slow_abort_in_a_row_ends_with_the_setting_and_the_size() -> None:
    timeouts = ConsecutiveTimeouts(15.0)
    assert aborted(timeouts, 16.0) is None
    error = aborted(timeouts, 17.25)
    assert isinstance(error, LimitError)
    assert "transport.transaction_timeout_s (15 s)" in str(error)
    assert "1,500,000 records (200,000,000 bytes) and was written in 17.2 s" in str(error)
    assert error.exit_code == 3


def test_consecutive_timeouts_commit_between_two_slow_aborts_resets_the_count() -> None:
    timeouts = ConsecutiveTimeouts(15.0)
    assert aborted(timeouts, 16.0) is None
    timeouts.committed()
    assert aborted(timeouts, 16.0) is None
    assert aborted(timeouts, 16.0) is not None


def test_consecutive_timeouts_aborts_for_other_reasons_neither_count_nor_reset() -> None:
    timeouts = ConsecutiveTimeouts(15.0)
    assert [aborted(timeouts, wrote_s) for wrote_s in (0.1, 14.9, 16.0, 0.1)] == [None] * 4
    assert aborted(timeouts, 16.0) is not None
