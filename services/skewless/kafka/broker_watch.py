"""Notices that no broker answers, and that one answers again."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from skewless.kafka.reachability import ATTEMPT_S, QUIET, REPORTED_S
from skewless.kafka.settings import KafkaSettings

CHECK_S = 5.0
"""Time from a request for the brokers to the next one."""
ANSWER_S = 10.0
"""Time without an answer to it after which no broker answers. A broker may pause for seconds, as to collect garbage."""


class BrokerWatch:
    """A connection to the brokers."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._servers = kafka.bootstrap_servers
        self._client = AdminClient({**QUIET, **kafka.client_options(), "error_cb": self._note_error})
        self._lost_at: float | None = time.monotonic()  # the first request connects
        self._is_reported = False
        self._asked_at = 0.0
        self._answer: Future[Any] | None = None
        self._is_silent = False

    @property
    def is_away(self) -> bool:
        """Whether no broker has answered since a connection was lost, or since the start."""
        return self._lost_at is not None

    def poll(self) -> str | None:
        """Return a line when no broker has answered for `REPORTED_S` seconds, and when one answers again.

        Call it several times a second. While no broker answers, it takes up to `ATTEMPT_S` seconds.
        """
        self._client.poll(0)
        self._note_silence()
        if self._lost_at is None:
            return None
        away_s = time.monotonic() - self._lost_at
        if not self._is_connected():
            if self._is_reported or away_s < REPORTED_S:
                return None
            self._is_reported = True
            return f"no Kafka broker answers at {self._servers}: the stages wait for it"
        was_reported, self._is_reported, self._lost_at = self._is_reported, False, None
        self._answer, self._is_silent = None, False
        return f"Kafka answers again, after {away_s:.0f} s" if was_reported else None

    def _note_silence(self) -> None:
        """Ask a broker without waiting for it, and note when one has not answered in time."""
        # A connection to a broker that hangs has no error: its machine still accepts connections.
        now = time.monotonic()
        if self._answer is not None and self._answer.done():
            self._is_silent, self._answer = _is_timeout(self._answer.exception()), None
            if self._is_silent and self._lost_at is None:
                self._lost_at = self._asked_at
        if self._answer is None and now >= self._asked_at + CHECK_S and (self._lost_at is None or self._is_silent):
            self._asked_at, self._answer = now, self._client.describe_cluster(request_timeout=ANSWER_S)

    def _is_connected(self) -> bool:
        try:
            self._client.list_topics(timeout=ATTEMPT_S)
        except KafkaException as error:
            # Far brokers, and the list of all topics of a large cluster, take longer.
            return _is_timeout(error) and not self._is_silent
        return True

    def _note_error(self, _error: KafkaError) -> None:
        if self._lost_at is None:
            self._lost_at = time.monotonic()


def _is_timeout(error: BaseException | None) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._TIMED_OUT  # noqa: SLF001
