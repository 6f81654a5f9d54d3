"""Kafka's admin operations that a pipeline needs, with our errors and time limits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigEntry, ConfigResource, NewTopic

from skewless.errors import BrokerError, UnreachableError
from skewless.transport.clients import refused
from skewless.transport.failures import refusal
from skewless.transport.probe import QUIET, wait_until_reachable
from skewless.transport.settings import KafkaSettings

TIMEOUTS = {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001 - the library's names of its local error codes
WAIT_S = 0.1


@dataclass(frozen=True)
class Found:
    """What a topic on the broker is."""

    partitions: int
    replication_factor: int
    """Copies of the partition that has fewest."""
    options: Mapping[str, str]


class Admin:
    """An admin client. Raises UnreachableError when no broker answers within `kafka.timeout_s`."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        options = {name: _text(value) for name, value in kafka.client_options().items()}
        try:
            wait_until_reachable(options, kafka.timeout_s)
            self._client = AdminClient({**QUIET, **options})
        except KafkaException as error:
            raise refused(error, options) from None

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of every topic that we may see, by its full name."""
        return {name: len(topic.partitions) for name, topic in self._metadata().topics.items() if not topic.error}

    def check_visible(self, names: Iterable[str]) -> None:
        """Raise BrokerError for a topic that we may not see: it looks as if it did not exist."""
        wanted = list(names)
        if not wanted:
            return
        # Unlike a request for metadata by name this one never creates a topic.
        found = self._client.describe_topics(TopicCollection(wanted), request_timeout=self._kafka.timeout_s)
        for name, future in found.items():
            reason = future.exception()
            if isinstance(reason, KafkaException) and reason.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self._translated(f"looking for topic {name}", reason.args[0], "Describe (or Read, or Write)")

    def describe(self, names: Iterable[str]) -> dict[str, Found]:
        """Describe those of the topics that exist."""
        topics = self._metadata().topics
        existing = [name for name in names if name in topics and not topics[name].error]
        if not existing:
            return {}
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in existing}
        futures = self._client.describe_configs(list(resources.values()), request_timeout=self._kafka.timeout_s)
        return {
            name: Found(
                partitions=len(topics[name].partitions),
                replication_factor=min(len(partition.replicas) for partition in topics[name].partitions.values()),
                options={option: entry.value for option, entry in self._options(name, futures[resource]).items()},
            )
            for name, resource in resources.items()
        }

    def create(self, name: str, partitions: int, replication_factor: int, options: Mapping[str, str]) -> bool:
        """Create a topic; False when somebody else has just done it."""
        topic = NewTopic(name, partitions, replication_factor, config=dict(options))
        future = self._client.create_topics([topic], request_timeout=self._kafka.timeout_s)[name]
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._translated(f"creating topic {name}", error.args[0], "Create") from None
        return True

    def wait_for_leaders(self, partitions: Mapping[str, int]) -> None:
        """Wait until every partition of these topics has a leader; `partitions` by the topics' full names."""
        deadline = time.monotonic() + self._kafka.timeout_s
        while waiting := sorted(self._without_leaders(partitions)):
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"topics {', '.join(waiting)} at {self._kafka.bootstrap_servers} have partitions without a leader "
                    f"after {self._kafka.timeout_s:g} s: check that all brokers run"
                )
            time.sleep(WAIT_S)

    def _without_leaders(self, partitions: Mapping[str, int]) -> set[str]:
        topics = self._metadata().topics
        ready = {
            name
            for name, topic in topics.items()
            if sum(partition.leader >= 0 for partition in topic.partitions.values()) >= partitions.get(name, 0)
        }
        return partitions.keys() - ready

    def _metadata(self) -> ClusterMetadata:
        # Always of all topics: asking for one by name may create it on brokers that make topics by themselves.
        try:
            return self._client.list_topics(timeout=self._kafka.timeout_s)
        except KafkaException as error:
            raise self._translated("reading the list of topics", error.args[0], "Describe") from None

    def _options(self, name: str, future: Future[dict[str, ConfigEntry]]) -> dict[str, ConfigEntry]:
        try:
            return future.result()
        except KafkaException as error:
            raise self._translated(f"reading the options of topic {name}", error.args[0], "DescribeConfigs") from None

    def _translated(self, doing: str, error: KafkaError, operation: str) -> UnreachableError:
        doing = f"{doing} at {self._kafka.bootstrap_servers}"
        kind = UnreachableError if error.code() in TIMEOUTS else BrokerError
        return refusal(error, doing, operation) or kind(f"{doing} failed: {error.str()} ({error.name()})")


def _text(value: str | float | bool) -> str:  # noqa: FBT001 - a value, not a switch
    return str(value).lower() if isinstance(value, bool) else str(value)
