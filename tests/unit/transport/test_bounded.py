"""A call that never returns must not take its caller along."""

from __future__ import annotations

import threading

import pytest

from skewless.transport.bounded import returns_in_time


def test_a_call_that_returns_has_returned() -> None:
    done = threading.Event()
    assert returns_in_time(done.set, 10.0)
    assert done.is_set()


def test_a_call_that_hangs_is_left_behind() -> None:
    release = threading.Event()

    def never() -> None:
        release.wait()

    assert not returns_in_time(never, 0.05)
    release.set()


def test_the_error_of_a_call_is_its_callers() -> None:
    def fails() -> None:
        raise ValueError("told")

    with pytest.raises(ValueError, match="told"):
        returns_in_time(fails, 10.0)
