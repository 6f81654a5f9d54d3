"""Requests that are repeated while their errors are transient."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, UnreachableError
from skewless.kafka import repeat
from skewless.kafka.settings import KafkaSettings

NOT_COORDINATOR = KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
REFUSED = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses. Each pause advances the clock."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr("time.monotonic", lambda: sum(pauses))
    return pauses


def answering(*answers: object) -> Iterator[object]:
    """Yield the responses. An exception is raised instead."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        yield answer


def ask(*answers: object, connect_timeout_s: float = 1.0) -> object:
    kafka, remaining = KafkaSettings(connect_timeout_s=connect_timeout_s), list(answers)
    return repeat.repeat_while_transient(
        kafka, lambda: next(answering(remaining.pop(0))), "reading the offsets of group g", "Describe"
    )


def test_repeat_transient_error_repeats_the_request(slept: list[float]) -> None:
    assert ask(NOT_COORDINATOR, NOT_COORDINATOR, 7) == 7
    assert slept == [repeat.PAUSE_S] * 2


def test_repeat_transient_error_beyond_the_timeout_raises_unreachable_error(slept: list[float]) -> None:
    with pytest.raises(UnreachableError, match="no answer from Kafka at localhost:9092 while reading the off"):
        ask(*[NOT_COORDINATOR] * 20)
    assert sum(slept) == pytest.approx(1.1)


def test_repeat_permanent_error_raises_broker_error_at_once(slept: list[float]) -> None:
    with pytest.raises(BrokerError, match=r"reading the offsets of group g at .* grant Describe on the group"):
        ask(REFUSED, 7)
    assert slept == []
