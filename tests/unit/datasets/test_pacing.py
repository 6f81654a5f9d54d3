"""The pacer, under a clock that the tests move."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skewless.datasets.pacing import Pacer


def ms(*times: int) -> NDArray[np.int64]:
    return np.array(times, np.int64)


def test_without_limits_everything_may_go() -> None:
    assert Pacer(0.0).take(0.0, ms(*range(10))) == 10


def test_a_rate_lets_through_what_is_due_since_the_start() -> None:
    pacer = Pacer(100.0, rate=8)
    assert [pacer.take(now, ms(*range(50))) for now in (100.0, 100.0625, 100.125, 101.0, 101.0)] == [0, 0, 1, 7, 0]


def test_speed_keeps_the_distance_of_event_times_times_the_factor() -> None:
    pacer, times = Pacer(0.0, speed=10), ms(5000, 5000, 6000, 15_000)
    assert pacer.take(0.0, times) == 2
    assert pacer.take(0.05, times[2:]) == 0
    assert pacer.take(0.1, times[2:]) == 1
    assert pacer.take(0.9, times[3:]) == 0
    assert pacer.take(1.0, times[3:]) == 1


def test_a_record_older_than_the_one_before_does_not_wait() -> None:
    assert Pacer(0.0, speed=1).take(0.0, ms(5000, 4000, 5000)) == 3


def test_with_rate_and_speed_the_slower_one_counts() -> None:
    assert Pacer(0.0, rate=1, speed=1000).take(2.0, ms(*range(100))) == 2
    assert Pacer(0.0, rate=1000, speed=1).take(2.0, ms(0, 1000, 9000)) == 2


@given(
    st.floats(0.5, 1e5),
    st.lists(st.floats(0, 3), max_size=20),
)
def test_a_rate_is_never_exceeded(rate: float, steps: list[float]) -> None:
    pacer, now, sent = Pacer(0.0, rate=rate), 0.0, 0
    for step in steps:
        now += step
        sent += pacer.take(now, np.zeros(500, np.int64))
        assert sent <= now * rate
