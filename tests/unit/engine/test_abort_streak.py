from __future__ import annotations

from skewless.engine.abort_streak import AbortStreak
from skewless.errors import LimitError


def aborted(streak: AbortStreak, wrote_s: float) -> LimitError | None:
    return streak.aborted(wrote_s=wrote_s, records=1_500_000, written_bytes=200_000_000)


def test_second_slow_abort_in_a_row_ends_with_the_setting_and_the_size() -> None:
    streak = AbortStreak(15.0)
    assert aborted(streak, 16.0) is None
    error = aborted(streak, 17.25)
    assert isinstance(error, LimitError)
    assert "transport.transaction_timeout_s (15 s)" in str(error)
    assert "1,500,000 records (200,000,000 bytes) and was written in 17.2 s" in str(error)
    assert error.exit_code == 3


def test_abort_streak_commit_between_two_slow_aborts_resets_the_count() -> None:
    streak = AbortStreak(15.0)
    assert aborted(streak, 16.0) is None
    streak.committed()
    assert aborted(streak, 16.0) is None
    assert aborted(streak, 16.0) is not None


def test_abort_streak_aborts_for_other_reasons_neither_count_nor_reset() -> None:
    streak = AbortStreak(15.0)
    assert [aborted(streak, wrote_s) for wrote_s in (0.1, 14.9, 16.0, 0.1)] == [None] * 4
    assert aborted(streak, 16.0) is not None
