"""The admin client repeats requests that only read, and leaves out options of topics that brokers do not know."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic

from skewless.errors import BrokerError, UnreachableError
from skewless.kafka.admin.client import NEW_TOPIC_S, Admin
from skewless.kafka.admin.topic_options import ANY_TIME_MS, COMPACTION_OPTIONS, OPTIONAL, TIMESTAMP_LIMITS
from skewless.kafka.settings import KafkaSettings


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only pauses advance the clock."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr("time.monotonic", lambda: sum(pauses))


class Unsteady:
    """A client whose first requests for the topics fail."""

    def __init__(self, code: int, failures: int) -> None:
        self._code, self._failures = code, failures
        self.requests = 0

    def list_topics(self, *, timeout: float) -> Any:
        self.requests += 1
        if self.requests <= self._failures:
            raise KafkaException(KafkaError(self._code))
        return SimpleNamespace(topics={"events": SimpleNamespace(partitions={0: None, 1: None}, error=None)})


class Cluster:
    """A client of brokers of which some do not know the topics before a number of requests."""

    def __init__(self, listed_at: int, known_at: int) -> None:
        self._listed_at, self._known_at = listed_at, known_at
        self.requests = 0

    def list_topics(self, *, timeout: float) -> Any:
        self.requests += 1
        partition = SimpleNamespace(replicas=[1], isrs=[1])
        topic = SimpleNamespace(partitions={0: partition}, error=None)
        return SimpleNamespace(topics={"events": topic} if self.requests >= self._listed_at else {})

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        future: Future[Any] = Future()
        if self.requests < self._known_at:
            future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        else:
            future.set_result({"cleanup.policy": SimpleNamespace(value="delete")})
        return dict.fromkeys(resources, future)


@pytest.mark.parametrize(
    ("listed_at", "known_at", "wait_for_all", "requests"),
    [(1, 3, False, 3), (2, 3, True, 3), (2, 2, False, 1), (1, 10**9, False, 31), (10**9, 1, True, 31)],
)
def test_admin_describes_a_topic_when_all_brokers_know_it_or_leaves_it_out_after_a_time(
    monkeypatch: pytest.MonkeyPatch, listed_at: int, known_at: int, *, wait_for_all: bool, requests: int
) -> None:
    cluster = Cluster(listed_at, known_at)
    monkeypatch.setattr("skewless.kafka.admin.client.connect_admin", lambda _kafka: cluster)
    described = Admin(KafkaSettings()).describe(["events"], wait_for_all=wait_for_all)
    assert cluster.requests == requests
    assert [each.options for each in described.values()] == ([{"cleanup.policy": "delete"}] if requests == 3 else [])


class Brokers:
    """A client of brokers that know some options of topics, and refuse others as Apache Kafka does."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self.created: dict[str, str] | None = None

    def create_topics(
        self, topics: list[NewTopic], *, request_timeout: float, validate_only: bool
    ) -> dict[str, Future[None]]:
        (topic,) = topics
        assert not validate_only
        unknown = [option for option in topic.config if option not in self._known]
        future: Future[None] = Future()
        if unknown:
            text = f"Unknown topic config name: {unknown[0]}"
            future.set_exception(KafkaException(KafkaError(KafkaError.INVALID_CONFIG, text)))
        else:
            self.created = topic.config
            future.set_result(None)
        return {topic.topic: future}


def admin(client: object, connect_timeout_s: float = 30.0) -> Admin:
    made = object.__new__(Admin)
    made._kafka, made._client = KafkaSettings(connect_timeout_s=connect_timeout_s), client
    return made


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR])
def test_admin_connection_lost_in_a_request_repeats_it(code: int) -> None:
    client = Unsteady(code, failures=2)
    assert admin(client).partition_counts() == {"events": 2}
    assert client.requests == 3


def test_admin_broker_away_for_longer_than_the_timeout_is_unreachable() -> None:
    client = Unsteady(KafkaError._TRANSPORT, failures=1_000)
    with pytest.raises(
        UnreachableError, match="no answer from Kafka at localhost:9092 while reading the list of topics"
    ):
        admin(client, connect_timeout_s=0.3).partition_counts()
    assert client.requests > 1


def test_admin_refused_request_is_not_repeated() -> None:
    client = Unsteady(KafkaError.CLUSTER_AUTHORIZATION_FAILED, failures=1_000)
    with pytest.raises(BrokerError, match="reading the list of topics"):
        admin(client).partition_counts()
    assert client.requests == 1


class Lagging:
    """A client of a broker that lists a new topic from the third request on."""

    def __init__(self) -> None:
        self.requests = 0

    def list_topics(self, *, timeout: float) -> Any:
        self.requests += 1
        topic = SimpleNamespace(partitions={0: None}, error=None)
        return SimpleNamespace(topics=dict.fromkeys(["old", "new"] if self.requests >= 3 else ["old"], topic))


def test_admin_topic_that_was_just_created_is_waited_for_if_it_is_needed() -> None:
    client = Lagging()
    assert admin(client).partition_counts(needed=["old"]) == {"old": 1}
    assert client.requests == 1
    assert admin(client).partition_counts(needed=["new"]) == {"old": 1, "new": 1}
    assert client.requests == 3


def test_admin_topic_that_does_not_exist_is_waited_for_a_second() -> None:
    started = time.monotonic()
    assert admin(Lagging()).partition_counts(needed=["old", "missing"]) == {"old": 1, "new": 1}
    assert time.monotonic() - started >= NEW_TOPIC_S


class Slow:
    """A client of a broker that gives one more topic leaders at every second request, up to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.requests = 0

    def list_topics(self, *, timeout: float) -> Any:
        self.requests += 1
        ready = min(self._most, self.requests // 2)
        leaders = [0 if number < ready else -1 for number in range(5)]
        partitions = [{0: SimpleNamespace(leader=leader)} for leader in leaders]
        return SimpleNamespace(topics={f"t{i}": SimpleNamespace(partitions=each) for i, each in enumerate(partitions)})


TOPICS = {f"t{number}": 1 for number in range(5)}


def test_admin_leaders_that_appear_one_after_the_other_are_waited_for() -> None:
    client = Slow(most=5)
    started = time.monotonic()
    admin(client, connect_timeout_s=0.3).wait_for_leaders(TOPICS)
    assert time.monotonic() - started > 0.3


def test_admin_leaders_that_never_appear_are_named_with_what_to_do() -> None:
    with pytest.raises(UnreachableError, match=r"topics t3, t4 at .* leader after 0\.3 s: .* repeat the command"):
        admin(Slow(most=3), connect_timeout_s=0.3).wait_for_leaders(TOPICS)


OLDER_LIMIT = "message.timestamp.difference.max.ms"
OPTIONS = {"cleanup.policy": "compact", **TIMESTAMP_LIMITS, **COMPACTION_OPTIONS}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({*OPTIONS, OLDER_LIMIT}, OPTIONS),
        (
            {"cleanup.policy", OLDER_LIMIT, *COMPACTION_OPTIONS},
            {"cleanup.policy": "compact", OLDER_LIMIT: ANY_TIME_MS, **COMPACTION_OPTIONS},
        ),
        ({"cleanup.policy"}, {"cleanup.policy": "compact"}),
    ],
    ids=["now", "before 3.6", "none"],
)
def test_admin_create_leaves_out_the_options_that_brokers_do_not_know(
    known: set[str], expected: dict[str, str]
) -> None:
    brokers = Brokers(known)
    assert admin(brokers).create("events", 1, None, OPTIONS)
    assert brokers.created == expected


@pytest.mark.parametrize(
    ("unknown", "optional"), [("cleanup.policy", set(OPTIONAL)), ("segment.bytes", OPTIONAL.keys() - {"segment.bytes"})]
)
def test_admin_create_other_option_that_brokers_do_not_know_is_an_error(unknown: str, optional: set[str]) -> None:
    brokers = Brokers(OPTIONS.keys() - {unknown})
    with pytest.raises(BrokerError, match=f"creating topic events .*Unknown topic config name: {unknown}"):
        admin(brokers).create("events", 1, None, OPTIONS, optional)
    assert brokers.created is None
