"""When a process that ended is started again."""

from __future__ import annotations

import signal

import pytest

from skewless.local.restarts import MOST_FAILURES, Restarts, Verdict


def ends(restarts: Restarts, *runs: tuple[float, int]) -> list[Verdict]:
    """Run the process once per (seconds, exit code), each start as soon as it is allowed."""
    now, verdicts = 0.0, []
    for seconds, code in runs:
        restarts.started(now)
        verdicts.append(restarts.ended(code, now + seconds))
        now = verdicts[-1].at
    return verdicts


def delays(*runs: tuple[float, int]) -> list[float]:
    verdicts = ends(Restarts(drain=False), *runs)
    ended_at = [start + seconds for start, (seconds, _) in zip([0.0, *(v.at for v in verdicts)], runs, strict=False)]
    return [round(verdict.at - end, 6) for verdict, end in zip(verdicts, ended_at, strict=True)]


def test_the_delay_doubles_up_to_ten_seconds() -> None:
    assert delays(*[(1.0, 1)] * 8) == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_minute_of_running_resets_the_delay() -> None:
    assert delays((1.0, 1), (1.0, 1), (60.0, 1), (1.0, 1)) == [0.2, 0.4, 0.2, 0.4]


@pytest.mark.parametrize("code", [1, 70, 130, -signal.SIGKILL, -signal.SIGSEGV])
@pytest.mark.parametrize("drain", [True, False])
def test_crashes_and_kills_are_restarted(code: int, drain: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert ends(Restarts(drain=drain), (1.0, code)) == [Verdict("restart", 1.2)]


def test_an_end_in_good_order_is_final_only_when_draining() -> None:
    assert ends(Restarts(drain=True), (1.0, 0)) == [Verdict("finished")]
    assert ends(Restarts(drain=False), (1.0, 0)) == [Verdict("restart", 1.2)]


def test_a_bounded_run_ends_when_a_process_fails_again_and_again() -> None:
    failing = [(1.0, 1)] * MOST_FAILURES
    assert [verdict.action for verdict in ends(Restarts(drain=True), *failing)] == ["restart"] * 7 + ["give_up"]
    assert ends(Restarts(drain=False), *failing)[-1].action == "restart"


@pytest.mark.parametrize("between", [(61.0, 1), (1.0, -signal.SIGKILL)], ids=["a minute of running", "a kill"])
def test_what_is_no_failure_in_a_row_does_not_count(between: tuple[float, int]) -> None:
    runs = [(1.0, 1)] * (MOST_FAILURES - 2) + [between, (1.0, 1)]
    assert ends(Restarts(drain=True), *runs)[-1].action == "restart"


def test_a_mistake_of_configuration_is_never_restarted() -> None:
    assert ends(Restarts(drain=False), (100.0, 2)) == [Verdict("give_up")]


def test_a_broker_that_was_never_reached_is_a_mistake_too() -> None:
    assert ends(Restarts(drain=False), (15.0, 3)) == [Verdict("give_up")]


def test_a_broker_that_went_away_is_waited_for() -> None:
    verdicts = ends(Restarts(drain=False), (100.0, 3), (15.0, 3), (15.0, 3))
    assert [verdict.action for verdict in verdicts] == ["restart"] * 3
