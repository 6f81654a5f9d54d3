"""The rate limiter with an injected clock."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skewless.lab.datasets.rate_limiter import RateLimiter


def ms(*times: int) -> NDArray[np.int64]:
    return np.array(times, np.int64)


def test_rate_limiter_without_limits_admits_everything() -> None:
    assert RateLimiter(0.0).acquire(0.0, ms(*range(10))) == 10


def test_rate_limiter_with_a_rate_admits_the_records_due_since_the_start() -> None:
    limiter = RateLimiter(100.0, rate=8)
    assert [limiter.acquire(now, ms(*range(50))) for now in (100.0, 100.0625, 100.125, 101.0, 101.0)] == [0, 0, 1, 7, 0]


def test_rate_limiter_with_a_speed_scales_the_distances_of_event_times() -> None:
    limiter, times = RateLimiter(0.0, speed=10), ms(5000, 5000, 6000, 15_000)
    assert limiter.acquire(0.0, times) == 2
    assert limiter.acquire(0.05, times[2:]) == 0
    assert limiter.acquire(0.1, times[2:]) == 1
    assert limiter.acquire(0.9, times[3:]) == 0
    assert limiter.acquire(1.0, times[3:]) == 1


def test_rate_limiter_record_older_than_the_previous_one_does_not_wait() -> None:
    assert RateLimiter(0.0, speed=1).acquire(0.0, ms(5000, 4000, 5000)) == 3


def test_rate_limiter_with_rate_and_speed_follows_the_slower_one() -> None:
    assert RateLimiter(0.0, rate=1, speed=1000).acquire(2.0, ms(*range(100))) == 2
    assert RateLimiter(0.0, rate=1000, speed=1).acquire(2.0, ms(0, 1000, 9000)) == 2


@given(
    st.floats(0.5, 1e5),
    st.lists(st.floats(0, 3), max_size=20),
)
def test_rate_limiter_any_polling_never_exceeds_the_rate(rate: float, steps: list[float]) -> None:
    limiter, now, sent = RateLimiter(0.0, rate=rate), 0.0, 0
    for step in steps:
        now += step
        sent += limiter.acquire(now, np.zeros(500, np.int64))
        assert sent <= now * rate
