"""Restart decisions for processes that have ended."""

from __future__ import annotations

import signal

import pytest

from skewless.lab.local.restarts import MAX_CONSECUTIVE_FAILURES, RestartDecision, RestartPolicy


def policy(*, drain: bool) -> RestartPolicy:
    return RestartPolicy(drain=drain, connect_timeout_s=15.0)


def ends(restarts: RestartPolicy, *runs: tuple[float, int]) -> list[RestartDecision]:
    """Run the process once per (seconds, exit code). Each start is as early as allowed."""
    now, decisions = 0.0, []
    for seconds, code in runs:
        restarts.started(now)
        decisions.append(restarts.ended(code, now + seconds))
        now = decisions[-1].restart_at
    return decisions


def delays(*runs: tuple[float, int]) -> list[float]:
    decisions = ends(policy(drain=False), *runs)
    ended_at = [
        start + seconds for start, (seconds, _) in zip([0.0, *(d.restart_at for d in decisions)], runs, strict=False)
    ]
    return [round(decision.restart_at - end, 6) for decision, end in zip(decisions, ended_at, strict=True)]


def test_restart_policy_repeated_failures_double_the_delay_up_to_ten_seconds() -> None:
    assert delays(*[(1.0, 1)] * 8) == [0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]


def test_restart_policy_run_of_a_minute_resets_the_delay() -> None:
    assert delays((1.0, 1), (1.0, 1), (60.0, 1), (1.0, 1)) == [0.0, 0.2, 0.0, 0.2]


@pytest.mark.parametrize("code", [1, 70, 130, -signal.SIGKILL, -signal.SIGSEGV])
@pytest.mark.parametrize("drain", [True, False])
def test_restart_policy_crash_or_kill_restarts(code: int, drain: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert ends(policy(drain=drain), (1.0, code)) == [RestartDecision("restart", 1.0)]


def test_restart_policy_clean_end_is_final_only_when_draining() -> None:
    assert ends(policy(drain=True), (1.0, 0)) == [RestartDecision("finished")]
    assert ends(policy(drain=False), (1.0, 0)) == [RestartDecision("restart", 1.0)]


def test_restart_policy_bounded_run_with_repeated_failures_ends() -> None:
    failing = [(1.0, 1)] * MAX_CONSECUTIVE_FAILURES
    assert [decision.action for decision in ends(policy(drain=True), *failing)] == ["restart"] * 7 + ["give_up"]
    assert ends(policy(drain=False), *failing)[-1].action == "restart"


@pytest.mark.parametrize("between", [(61.0, 1), (1.0, -signal.SIGKILL)], ids=["a minute of running", "a kill"])
def test_restart_policy_failures_that_are_not_consecutive_restart(between: tuple[float, int]) -> None:
    runs = [(1.0, 1)] * (MAX_CONSECUTIVE_FAILURES - 2) + [between, (1.0, 1)]
    assert ends(policy(drain=True), *runs)[-1].action == "restart"


def test_restart_policy_configuration_error_is_never_restarted() -> None:
    assert ends(policy(drain=False), (100.0, 2)) == [RestartDecision("give_up")]


def test_restart_policy_broker_never_reached_is_not_restarted() -> None:
    assert ends(policy(drain=False), (15.0, 3)) == [RestartDecision("give_up")]


def test_restart_policy_broker_lost_after_a_start_restarts() -> None:
    decisions = ends(policy(drain=False), (100.0, 3), (15.0, 3), (15.0, 3))
    assert [decision.action for decision in decisions] == ["restart"] * 3


def test_restart_policy_repeated_refusals_after_a_start_end() -> None:
    decisions = ends(policy(drain=False), (100.0, 3), *[(2.0, 3)] * MAX_CONSECUTIVE_FAILURES)
    assert [decision.action for decision in decisions] == ["restart"] * MAX_CONSECUTIVE_FAILURES + ["give_up"]


@pytest.mark.parametrize("between", [(15.0, 3), (2.0, 1)], ids=["a wait for a broker", "a crash"])
def test_restart_policy_refusals_that_are_not_consecutive_restart(between: tuple[float, int]) -> None:
    refused = [(2.0, 3)] * (MAX_CONSECUTIVE_FAILURES - 1)
    assert ends(policy(drain=False), (100.0, 3), *refused, between, *refused)[-1].action == "restart"
