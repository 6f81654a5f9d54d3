"""Ids of topics from brokers that have none, that refuse to tell them, or that do not answer."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from skewless.errors import UnavailableError
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
        list_topics=lambda **_options: None, describe_topics=lambda *_arguments, **_options: {"clicks": future}
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


def test_read_topic_ids_without_an_answer_can_be_repeated() -> None:
    with pytest.raises(UnavailableError, match="describing topic clicks"):
        read_topic_ids({"bootstrap.servers": "127.0.0.1:1"}, ["clicks"])
