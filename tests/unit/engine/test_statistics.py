from __future__ import annotations

import pytest

from skewless.engine import statistics
from skewless.engine.statistics import EngineStatistics, Stopwatch


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(statistics, "perf_counter", clock)
    return clock


def test_stopwatch_total_includes_the_present_run(clock: Clock) -> None:
    watch = Stopwatch()
    with watch.running():
        clock.now += 2
        assert watch.total_s == 2
    clock.now += 5
    with watch.running():
        clock.now += 1
    assert watch.total_s == 3


def test_engine_statistics_times_by_state_add_up_to_the_time_since_the_start(clock: Clock) -> None:
    statistics = EngineStatistics()
    with statistics.restoring_partitions():
        clock.now += 4
        assert statistics.times(0) == {"busy": 0, "back_pressured": 0, "restoring": 4, "idle": 0}
    with statistics.working.running():
        clock.now += 3
    with statistics.committing.running():
        clock.now += 0.5
        assert statistics.times(1) == {"busy": 2, "back_pressured": 1.5, "restoring": 4, "idle": 0}
    clock.now += 10
    assert statistics.times(1) == {"busy": 2, "back_pressured": 1.5, "restoring": 4, "idle": 10}


def test_engine_statistics_busy_time_never_decreases(clock: Clock) -> None:
    statistics = EngineStatistics()
    with statistics.working.running():
        clock.now += 3
        assert statistics.times(1)["busy"] == 2
        clock.now += 1
        assert statistics.times(4)["busy"] == 2  # the waits of before are known now
        clock.now += 3
        assert statistics.times(4)["busy"] == 3


def test_engine_statistics_idle_time_never_decreases(clock: Clock) -> None:
    statistics = EngineStatistics()
    clock.now += 10
    assert statistics.times(0)["idle"] == 10
    assert statistics.times(3)["idle"] == 10  # a wait that no `working` covers: busy stays 0
