"""Lines of librdkafka: all in a process that has set up its log, errors elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from skewless.kafka.clients import LIBRDKAFKA, librdkafka_logger


@pytest.fixture(autouse=True)
def unused_logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the level of the logger, which no client of this process has used in the test."""
    level = logging.getLogger(LIBRDKAFKA).level
    monkeypatch.setattr(logging.getLogger(LIBRDKAFKA), "level", logging.NOTSET)
    yield
    logging.getLogger(LIBRDKAFKA).setLevel(level)


def test_librdkafka_logger_without_a_log_of_the_process_has_errors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert not librdkafka_logger().isEnabledFor(logging.WARNING)
    assert librdkafka_logger().isEnabledFor(logging.ERROR)


def test_librdkafka_logger_with_a_log_of_the_process_has_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    assert librdkafka_logger().isEnabledFor(logging.WARNING)


def test_librdkafka_logger_leaves_out_requests_to_a_coordinator_that_are_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = librdkafka_logger()
    logger.error("%s [%s] Failed to acquire transactional PID: Broker: Not coordinator: retrying", "GETPID", "p#1")
    logger.error("%s [%s] Failed to acquire transactional PID: Broker: Denied", "GETPID", "p#1")
    logger.error("%s [%s] connect failed: retrying", "FAIL", "p#1")
    assert [line.partition(" ")[0] for line in caplog.messages] == ["GETPID", "FAIL"]


def test_librdkafka_logger_leaves_out_options_of_the_other_kind_of_client(caplog: pytest.LogCaptureFixture) -> None:
    options = {"bootstrap.servers": "localhost:1", "fetch.wait.max.ms": 200, "linger.ms": 5, "group.id": "g"}
    clients = [kind({**options, "logger": librdkafka_logger()}) for kind in (Producer, Consumer)]
    clients[0].poll(0)
    clients[1].close()
    assert [message for message in caplog.messages if message.startswith("CONFWARN")] == []
