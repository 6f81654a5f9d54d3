"""Times at which commits are due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.engine.commit_policy import GATHER_S, IDLE_POLL_S, LATEST, POLL_S, REST_S, CommitPolicy
from skewless.kafka.consumer.options import consumer_options
from skewless.kafka.settings import KafkaSettings, TransportSettings

INTERVAL_S = 0.1


def policy(*, bursts: bool = True, wrote: bool = True) -> CommitPolicy:
    """Return a policy whose last commit began at 0."""
    policy = CommitPolicy(INTERVAL_S, bursts=bursts)
    policy.begin(0.0)
    if wrote:
        policy.wrote()
    return policy


def test_commit_policy_burst_processed_after_an_interval_commits_at_once() -> None:
    assert policy().due(0.101, progressed=True, at_rest=True)


def test_commit_policy_burst_in_progress_waits_for_its_end() -> None:
    assert not policy().due(0.101, progressed=True, at_rest=False)


def test_commit_policy_burst_processed_within_an_interval_waits() -> None:
    assert not policy().due(0.099, progressed=True, at_rest=True)


def test_commit_policy_last_commit_wrote_nothing_commits_at_once() -> None:
    assert policy(wrote=False).due(0.001, progressed=True, at_rest=True)


def test_commit_policy_nothing_processed_waits_for_the_latest_time() -> None:
    assert not policy().due(INTERVAL_S * LATEST - 0.001, progressed=False, at_rest=True)
    assert policy().due(INTERVAL_S * LATEST, progressed=False, at_rest=True)


def test_commit_policy_records_always_in_flight_waits_for_the_latest_time() -> None:
    assert not policy().due(INTERVAL_S * LATEST - 0.001, progressed=True, at_rest=False)
    assert policy().due(INTERVAL_S * LATEST, progressed=True, at_rest=False)


def test_commit_policy_records_without_bursts_commits_after_an_interval() -> None:
    assert not policy(bursts=False).due(0.099, progressed=True, at_rest=False)
    assert policy(bursts=False).due(0.1, progressed=True, at_rest=False)


@pytest.mark.parametrize(
    ("now", "busy", "wait_s"),
    [
        (0.0, False, IDLE_POLL_S),
        (0.1, False, 0.05),
        (0.2, False, REST_S),
        (0.0, True, POLL_S),
        (0.09, True, 0.01),
        (0.2, True, REST_S),
    ],
)
def test_commit_policy_wait_ends_when_a_commit_may_be_due(now: float, busy: bool, wait_s: float) -> None:  # noqa: FBT001 - a case
    assert policy().wait_s(now, busy=busy) == pytest.approx(wait_s)


@pytest.mark.parametrize(("now", "gather_s"), [(0.0, 0.025), (0.05, 0.025), (0.09, 0.01), (0.1, 0.0), (0.2, 0.0)])
def test_commit_policy_gather_ends_when_a_commit_is_due(now: float, gather_s: float) -> None:
    assert policy(bursts=False).gather_s(now) == pytest.approx(gather_s)


def test_commit_policy_gather_of_bursts_and_of_long_intervals_is_bounded() -> None:
    assert policy(bursts=True).gather_s(0.0) == 0
    assert CommitPolicy(10.0, bursts=False).gather_s(0.0) == 0  # overdue: no commit has begun
    slow = CommitPolicy(10.0, bursts=False)
    slow.begin(0.0)
    assert slow.gather_s(0.0) == GATHER_S


@given(st.lists(st.tuples(st.floats(0, 0.3), st.booleans(), st.booleans(), st.booleans()), max_size=50), st.booleans())
def test_commit_policy_any_progress_keeps_the_bounds_between_commits(
    turns: list[tuple[float, bool, bool, bool]],
    bursts: bool,  # noqa: FBT001 - drawn
) -> None:
    """Commits with outputs are at least an interval apart unless they are overdue; none is too late."""
    tested, now, begun, wrote_at = CommitPolicy(INTERVAL_S, bursts=bursts), 0.0, 0.0, -1.0
    tested.begin(now)
    latest_s = INTERVAL_S * (LATEST if bursts else 1)
    for passed_s, progressed, at_rest, wrote in turns:
        now += passed_s
        due = tested.due(now, progressed=progressed, at_rest=at_rest)
        overdue = now - begun >= latest_s
        assert due or not overdue
        assert not due or overdue or now - wrote_at >= INTERVAL_S
        if due:
            tested.begin(now)
            begun = now
            if wrote:
                tested.wrote()
                wrote_at = now


@pytest.mark.parametrize(("interval_s", "wait_ms"), [(0.01, 10), (0.1, 20), (0.5, 50), (5.0, 50)])
def test_consumer_options_fetch_wait_is_a_fifth_of_the_commit_interval(interval_s: float, wait_ms: int) -> None:
    transport = TransportSettings(commit_interval_s=interval_s, transaction_timeout_s=60)
    options = consumer_options(KafkaSettings(), transport, "group", "member", end_of_partition=False)
    assert options["fetch.wait.max.ms"] == wait_ms
