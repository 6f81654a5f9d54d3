"""A call that does not return must block neither its caller nor the next call."""

from __future__ import annotations

import threading

import pytest

from skewless.kafka.call_with_timeout import TimedCalls


def test_call_that_returns_has_returned() -> None:
    done = threading.Event()
    assert TimedCalls().call(done.set, 60.0)
    assert done.is_set()


def test_calls_use_one_thread_again_until_it_is_closed() -> None:
    calls, threads = TimedCalls(), list[threading.Thread]()
    for _ in range(3):
        assert calls.call(lambda: threads.append(threading.current_thread()), 60.0)
    assert len(set(threads)) == 1
    calls.close()
    threads[0].join(60.0)
    assert not threads[0].is_alive()
    assert calls.call(lambda: None, 60.0)


def test_call_that_hangs_is_left_behind_and_does_not_block_the_next_one() -> None:
    calls, release, late = TimedCalls(), threading.Event(), threading.Event()
    hung = list[threading.Thread]()

    def never() -> None:
        hung.append(threading.current_thread())
        release.wait()

    assert not calls.call(never, 0.05)
    assert calls.call(late.set, 60.0)
    assert late.is_set()
    release.set()
    hung[0].join(60.0)
    assert not hung[0].is_alive(), "the thread of a call that returns after all ends"


@pytest.mark.parametrize("error", [ValueError, TimeoutError])
def test_error_of_a_call_is_its_callers(error: type[Exception]) -> None:
    def fails() -> None:
        raise error("raised")

    with pytest.raises(error, match="raised"):
        TimedCalls().call(fails, 60.0)
