"""A wait fails only after a poll that began after its deadline."""

from __future__ import annotations

import pytest

from helpers.waiting import until, until_in_thread


async def test_until_poll_that_ends_after_the_deadline_is_repeated() -> None:
    # The limit of 0 s has passed when the first poll ends.
    answers = iter([False, True, False, True])
    until(lambda: next(answers), limit_s=0)
    await until_in_thread(lambda: next(answers), limit_s=0)
    with pytest.raises(AssertionError, match="did not hold within 0 s"):
        until(lambda: False, limit_s=0)
