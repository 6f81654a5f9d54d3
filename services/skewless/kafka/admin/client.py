"""Admin client: Kafka's admin operations that a pipeline needs, with the project's errors and timeouts."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ClusterMetadata, ConfigEntry, ConfigResource, NewTopic

from skewless.errors import CheckFailedError, UnreachableError
from skewless.kafka.admin.topic_options import OPTIONAL
from skewless.kafka.clients import connect_admin
from skewless.kafka.repeat import repeat_while_transient, request_error
from skewless.kafka.settings import KafkaSettings

RETRY_INTERVAL_S = 0.1
NEW_TOPIC_S = 3.0
"""Time within which every broker lists a topic after the controller has answered that it is created."""
_BROKER_DEFAULT = -1
"""Replication factor in a request to create a topic that stands for `default.replication.factor`."""


@dataclass(frozen=True)
class TopicDescription:
    """A topic as it exists on the broker."""

    partitions: int
    replication_factor: int
    """The smallest number of replicas of any partition."""
    options: Mapping[str, str]
    under_replicated: int = 0
    """Number of partitions with replicas that are not in sync."""


class Admin:
    """An admin client. Raises UnreachableError when no broker answers within `kafka.connect_timeout_s`."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._client = connect_admin(kafka)

    def partition_counts(self, needed: Collection[str] = ()) -> dict[str, int]:
        """Return the number of partitions of every visible topic, by its full name.

        If a topic of `needed` is not visible, the method waits for `NEW_TOPIC_S`: it may have just been created.
        """
        deadline = time.monotonic() + NEW_TOPIC_S
        while True:
            topics = self._metadata().topics
            counts = {name: len(topic.partitions) for name, topic in topics.items() if not topic.error}
            if counts.keys() >= set(needed) or time.monotonic() > deadline:
                return counts
            time.sleep(RETRY_INTERVAL_S)

    def check_visible(self, names: Iterable[str]) -> None:
        """Raise BrokerError for a topic that may not be described: otherwise it looks as if it did not exist."""
        topics = list(names)
        if not topics:
            return
        # Unlike a metadata request by name, this request never creates a topic.
        descriptions = self._client.describe_topics(
            TopicCollection(topics), request_timeout=self._kafka.connect_timeout_s
        )
        for name, future in descriptions.items():
            error = future.exception()
            if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise request_error(
                    self._kafka, error.args[0], f"looking for topic {name}", "Describe (or Read, or Write)"
                )

    def describe(self, names: Iterable[str], *, wait_for_all: bool = False) -> dict[str, TopicDescription]:
        """Return the descriptions of the topics that exist.

        The method waits for `NEW_TOPIC_S` while only some brokers know a topic, which has just been created or deleted.
        With `wait_for_all`, it also waits for topics that do not exist.
        """
        wanted, deadline = list(names), time.monotonic() + NEW_TOPIC_S
        while True:
            topics = self._metadata().topics
            existing = [name for name in wanted if name in topics and not topics[name].error]
            options = self._options(existing) if existing else {}
            if len(options) == len(wanted if wait_for_all else existing) or time.monotonic() > deadline:
                break
            time.sleep(RETRY_INTERVAL_S)
        return {
            name: TopicDescription(
                partitions=len(topics[name].partitions),
                replication_factor=min(len(partition.replicas) for partition in topics[name].partitions.values()),
                options={option: entry.value for option, entry in options[name].items()},
                under_replicated=sum(
                    len(partition.isrs) < len(partition.replicas) for partition in topics[name].partitions.values()
                ),
            )
            for name in options
        }

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return self._metadata().cluster_id or ""

    def broker_count(self) -> int:
        """Return the number of brokers of the cluster."""
        return len(self._metadata().brokers)

    def create(  # noqa: PLR0913 - the last one by name
        self,
        name: str,
        partitions: int,
        replication_factor: int | None,
        options: Mapping[str, str],
        optional: Collection[str] = OPTIONAL.keys(),
        *,
        only_check: bool = False,
    ) -> bool:
        """Create a topic. Returns False if it exists: another process has just created it.

        `replication_factor` None: the default of the brokers (KIP-464, Kafka 2.4 and later). An option of `optional`
        that the brokers do not know is left out. The option that it has replaced, if any, gets its value.

        With `only_check`, the brokers check the request and create nothing. It is that of a topic with another name,
        because the topic itself may exist.
        """
        requested = f"{name}.check" if only_check else name
        replicas = _BROKER_DEFAULT if replication_factor is None else replication_factor
        remaining = dict(options)
        while True:
            topic = NewTopic(requested, partitions, replicas, config=remaining)
            future = self._client.create_topics(
                [topic], request_timeout=self._kafka.connect_timeout_s, validate_only=only_check
            )[requested]
            try:
                future.result()
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
                refused = _refused_option(reason, remaining.keys() & optional)
                if refused is None:
                    raise request_error(self._kafka, reason, f"creating topic {name}", "Create") from None
                value, replaced = remaining.pop(refused), OPTIONAL[refused]
                if replaced is not None:
                    remaining[replaced] = value
            else:
                return True

    def delete(self, name: str) -> None:
        """Request the deletion of a topic, which brokers carry out later. A topic that does not exist is accepted."""
        future = self._client.delete_topics([name], request_timeout=self._kafka.connect_timeout_s)[name]
        try:
            future.result()
        except KafkaException as error:
            if not _is_unknown(error):
                raise request_error(self._kafka, error.args[0], f"deleting topic {name}", "Delete") from None

    def delete_group(self, name: str) -> None:
        """Delete a consumer group. Raises CheckFailedError if it has members. An absent group is accepted."""
        future = self._client.delete_consumer_groups([name], request_timeout=self._kafka.connect_timeout_s)[name]
        try:
            future.result()
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() == KafkaError.NON_EMPTY_GROUP:
                raise CheckFailedError(f"group {name} has members now: stop its processes first") from None
            if reason.code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise request_error(self._kafka, reason, f"deleting group {name}", "Delete") from None

    def wait_for_leaders(self, partitions: Mapping[str, int]) -> None:
        """Wait until all partitions of the topics have leaders; `partitions` are their numbers by full topic name.

        Raises UnreachableError if no further topic is complete within `kafka.connect_timeout_s`.
        """
        waiting, deadline = len(partitions), time.monotonic() + self._kafka.connect_timeout_s
        while leaderless := sorted(self._without_leaders(partitions)):
            if len(leaderless) < waiting:
                waiting, deadline = len(leaderless), time.monotonic() + self._kafka.connect_timeout_s
            elif time.monotonic() > deadline:
                raise UnreachableError(
                    f"topics {', '.join(leaderless)} at {self._kafka.bootstrap_servers} have partitions without a "
                    f"leader after {self._kafka.connect_timeout_s:g} s: check that all brokers run, and repeat the "
                    "command"
                )
            time.sleep(RETRY_INTERVAL_S)

    def _without_leaders(self, partitions: Mapping[str, int]) -> set[str]:
        topics = self._metadata().topics
        ready = {
            name
            for name, topic in topics.items()
            if sum(partition.leader >= 0 for partition in topic.partitions.values()) >= partitions.get(name, 0)
        }
        return partitions.keys() - ready

    def _metadata(self) -> ClusterMetadata:
        # Of all topics: a request for one topic by name may create it on brokers that create topics automatically.
        return repeat_while_transient(
            self._kafka,
            lambda: self._client.list_topics(timeout=self._kafka.connect_timeout_s),
            "reading the list of topics",
            "Describe",
        )

    def _options(self, names: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Return the options of the topics that the broker knows which is asked."""
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}

        def known() -> dict[str, dict[str, ConfigEntry]]:
            futures = self._client.describe_configs(
                list(resources.values()), request_timeout=self._kafka.connect_timeout_s
            )
            answers = {name: futures[resource] for name, resource in resources.items()}
            return {name: answer.result() for name, answer in answers.items() if not _is_unknown(answer.exception())}

        operation = f"reading the options of topics {', '.join(names)}"
        return repeat_while_transient(self._kafka, known, operation, "DescribeConfigs")


def _is_unknown(error: BaseException | None) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def _refused_option(error: KafkaError, options: Iterable[str]) -> str | None:
    """Return the option of a topic that the brokers do not know. None if the error has another reason.

    The protocol names the option in the text of the error only, for example: Unknown topic config name: segment.bytes.
    """
    if error.code() != KafkaError.INVALID_CONFIG:
        return None
    return next((option for option in sorted(options) if option in error.str()), None)
