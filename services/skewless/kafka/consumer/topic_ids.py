"""Reads the ids of topics (KIP-516). A topic that is deleted and created again gets another id."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from skewless.errors import UnavailableError, UnreachableError
from skewless.kafka.errors import is_transient
from skewless.kafka.reachability import CREATE_NO_TOPIC, QUIET

REQUEST_TIMEOUT_S = 2.0
PAUSE_S = 0.2
"""Pause between two attempts."""

ReadTopicIds = Callable[[Collection[str]], Mapping[str, int]]
"""Returns the ids of topics by name, without those that are unknown."""


def read_topic_ids(client_options: Mapping[str, Any], topics: Collection[str]) -> dict[str, int]:
    """Return the first 32 bits of the ids of topics, without the topics whose id is unknown.

    Brokers before Kafka 2.8 have no ids, and a client that may not describe a topic does not get its id. Raises
    UnavailableError if the brokers do not answer within `REQUEST_TIMEOUT_S`.
    """
    # An admin client of its own, because a consumer's metadata has no ids.
    admin = AdminClient({**QUIET, **client_options, **CREATE_NO_TOPIC})
    try:
        # See `reachability`: any other first request may wait for seconds. Of one topic, because the list of all topics
        # of a large cluster takes longer than this timeout.
        admin.list_topics(next(iter(topics)), timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise UnavailableError(f"describing topic {', '.join(topics)}: {error.args[0].str()}") from error
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S)
    ids: dict[str, int] = {}
    for topic, answer in answers.items():
        try:
            bits = answer.result().topic_id.get_most_significant_bits()
        except KafkaException as error:
            if is_transient(error.args[0]):
                raise UnavailableError(f"describing topic {topic}: {error.args[0].str()}") from error
            continue
        if bits:
            ids[topic] = bits >> 32 & 0xFFFFFFFF
    return ids


def wait_for_topic_ids(client_options: Mapping[str, Any], topics: Collection[str], timeout_s: float) -> dict[str, int]:
    """Repeat `read_topic_ids` until brokers answer. Raises UnreachableError if none does within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return read_topic_ids(client_options, topics)
        except UnavailableError as error:
            if time.monotonic() > deadline:
                raise UnreachableError(f"{error}: check that the brokers run") from None
            time.sleep(PAUSE_S)
