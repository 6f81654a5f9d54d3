"""Specification of a topic, and its differences from the topic that exists on the broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from skewless.errors import BrokerError
from skewless.kafka.admin.client import TopicDescription
from skewless.kafka.admin.topic_options import TIMESTAMP_LIMITS, known_option
from skewless.kafka.errors import TOPIC_BYTES

EVENT_TIME_OPTIONS = {"message.timestamp.type": "CreateTime", **TIMESTAMP_LIMITS}
MESSAGE_SIZE_OPTIONS = {"max.message.bytes": str(TOPIC_BYTES)}
"""Options of which an existing topic may have a larger value."""


@dataclass(frozen=True)
class TopicSpec:
    """Required properties of one topic."""

    name: str
    partitions: int
    replication_factor: int | None
    """None: the default of the brokers."""
    options: Mapping[str, str]
    """Options of the topic, by Kafka's names of topic configurations."""
    verified: frozenset[str]
    """Names of the options that an existing topic must have: results depend on them, or the user set them."""
    optional: frozenset[str]
    """Names of the options that are left out where the brokers do not know them."""
    partitions_of: str | None = None
    """Full name of the topic that has this number of partitions. None: the number does not come from a topic."""


@dataclass(frozen=True)
class Report:
    """Full names of the topics that were created, and of those that existed."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    topics: Mapping[str, TopicDescription]
    """All topics as they exist now, by full name."""
    warnings: tuple[str, ...]
    """What is not wrong, but endangers the records."""


def differences(spec: TopicSpec, existing: TopicDescription) -> Iterator[str]:
    """Yield the differences of an existing topic from its specification, each with its remedy."""
    if existing.partitions != spec.partitions:
        wanted, remedy = (
            ("the configuration wants", "set it back")
            if spec.partitions_of is None
            else (f"topic {spec.partitions_of} has", "count everything again with `skewless reset --to-start`")
        )
        yield (
            f"{spec.name}: has {existing.partitions} partitions, {wanted} {spec.partitions}; {remedy}, or start a "
            "pipeline of another name: the number cannot change while results must stay exact"
        )
    if spec.replication_factor is not None and existing.replication_factor < spec.replication_factor:
        yield (
            f"{spec.name}: has {existing.replication_factor} copies, topics.replication_factor wants "
            f"{spec.replication_factor}; add some with kafka-reassign-partitions.sh"
        )
    for option, required in _required_options(spec, existing).items():
        actual = existing.options.get(option)
        at_least = "at least " if option in MESSAGE_SIZE_OPTIONS else ""
        if _as_set(actual) != _as_set(required) and not (at_least and _is_more(actual, required)):
            yield _difference(spec.name, option, actual, required, at_least)


def _difference(topic: str, option: str, actual: str | None, required: str, at_least: str) -> str:
    argument = f"[{required}]" if "," in required else required
    return (
        f"{topic}: {option} is {actual}, should be {at_least}{required}; `kafka-configs.sh --alter "
        f"--entity-type topics --entity-name {topic} --add-config {option}={argument}`"
    )


def short_retentions(required_ms: Mapping[str, int], topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    """Yield a line with its remedy for each topic that keeps records for less than it should, by its full name."""
    for topic, required in required_ms.items():
        actual = topics[topic].options["retention.ms"]
        if 0 <= int(actual) < required:
            yield _difference(topic, "retention.ms", actual, str(required), "at least ")


def _required_options(spec: TopicSpec, existing: TopicDescription) -> dict[str, str]:
    """Return the verified options, without the optional ones that the brokers do not know."""
    required = {}
    for option in sorted(spec.verified):
        name = known_option(option, existing.options) if option in spec.optional else option
        if name is not None:
            required[name] = spec.options[option]
    return required


def timestamp_warnings(topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    """Yield a warning if the brokers know no option that lets them accept any event time."""
    missing = {
        option
        for topic in topics.values()
        for option in TIMESTAMP_LIMITS
        if known_option(option, topic.options) is None
    }
    if missing:
        yield (
            f"the brokers do not know {' and '.join(sorted(missing))}: if they limit how far the timestamp of a record "
            "is from their clock, stages cannot write records with such event times"
        )


def replication_warnings(topics: Mapping[str, TopicDescription], brokers: int) -> Iterator[str]:
    """Yield the risks of topics that have too few replicas now, each with its remedy. `brokers`: number of brokers."""
    single = sorted(name for name, topic in topics.items() if topic.replication_factor == 1)
    if single and brokers > 1:
        yield (
            f"{_topics(single)} 1 replica on a cluster of {brokers} brokers: if a broker is lost, so are records; "
            f"set topics.replication_factor to {min(3, brokers)} before topics are created, or add replicas to these "
            "with kafka-reassign-partitions.sh"
        )
    under_replicated = sorted(name for name, topic in topics.items() if topic.under_replicated)
    if under_replicated:
        yield f"{_topics(under_replicated)} replicas that are not in sync: check that all brokers run"


def _topics(names: Sequence[str]) -> str:
    return f"topic {names[0]} has" if len(names) == 1 else f"topics {', '.join(names)} have"


def _as_set(value: str | None) -> set[str] | None:
    """Return the elements of an option, which is a list without order if it has several (cleanup.policy)."""
    return None if value is None else set(value.split(","))


def _is_more(actual: str | None, required: str) -> bool:
    return actual is not None and actual.isdigit() and required.isdigit() and int(actual) > int(required)


def require_equal_partitions(count: int, required: int, what: str, other: str) -> None:
    """Raise BrokerError if `count`, the number of partitions of `what`, is not `required`, that of `other`."""
    if count != required:
        raise BrokerError(
            f"{what} has {count} partitions, and {other} {required}: the numbers must stay equal while results must "
            "stay exact; `skewless topics apply` lists all topics that differ, with the remedy for each"
        )
