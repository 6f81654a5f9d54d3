"""Ids of topics from brokers that have none, that refuse to tell them, or that do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from skewless.errors import UnavailableError, UnreachableError
from skewless.kafka.consumer import topic_ids
from skewless.kafka.consumer.topic_ids import read_topic_ids


def answered(answer: Uuid | int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the admin client by one whose brokers give this id or this error."""
    future: Future[Any] = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(SimpleNamespace(topic_id=answer))
    client = SimpleNamespace(
        list_topics=lambda _topic, **_options: None, describe_topics=lambda *_arguments, **_options: {"clicks": future}
    )
    monkeypatch.setattr(topic_ids, "AdminClient", lambda _options: client)


def test_read_topic_ids_returns_the_first_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(Uuid(-(2**63) + (5 << 32) + 9, 1), monkeypatch)
    assert read_topic_ids({}, ["clicks"]) == {"clicks": 0x80000005}


@pytest.mark.parametrize(
    "answer",
    [
        Uuid(0, 0),
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
    ],
    ids=str,
)
def test_read_topic_ids_of_old_brokers_and_refused_requests_returns_none(
    answer: Uuid | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(answer, monkeypatch)
    assert read_topic_ids({}, ["clicks"]) == {}


def test_read_topic_ids_asks_for_one_topic_and_creates_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of all topics of a large cluster takes longer than the timeout."""
    requests: list[tuple[object, object]] = []

    class Client:
        def __init__(self, options: dict[str, object]) -> None:
            self._creates = options["allow.auto.create.topics"]

        def list_topics(self, topic: str | None = None, **_options: object) -> None:
            requests.append((topic, self._creates))

        def describe_topics(self, *_arguments: object, **_options: object) -> dict[str, Future[Any]]:
            return {}

    monkeypatch.setattr(topic_ids, "AdminClient", Client)
    read_topic_ids({"allow.auto.create.topics": True}, ["clicks", "views"])
    assert requests == [("clicks", False)]


def test_read_topic_ids_without_an_answer_can_be_repeated() -> None:
    with pytest.raises(UnavailableError, match="describing topic clicks"):
        read_topic_ids({"bootstrap.servers": "127.0.0.1:1"}, ["clicks"])


def test_wait_for_topic_ids_repeats_the_request_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = UnavailableError("no answer")
    answers: Iterator[dict[str, int] | Exception] = iter([failure, {"clicks": 7}, failure])

    def read(_options: object, _topics: object) -> dict[str, int]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(topic_ids, "read_topic_ids", read)
    monkeypatch.setattr(topic_ids, "PAUSE_S", 0.0)
    assert topic_ids.wait_for_topic_ids({}, ["clicks"], 60.0) == {"clicks": 7}
    with pytest.raises(UnreachableError, match="no answer: check that the brokers run"):
        topic_ids.wait_for_topic_ids({}, ["clicks"], -1.0)
