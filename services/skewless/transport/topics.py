"""The topics of a pipeline: what they should be (pure), and making or verifying them on a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skewless import topology
from skewless.algorithms.watermark import MAX_ORIGINS
from skewless.errors import BrokerError, CheckFailedError, ConfigurationError
from skewless.transport.admin import Admin, Found
from skewless.transport.failures import TOPIC_BYTES

if TYPE_CHECKING:
    from skewless.settings import PipelineSettings

ANY_TIME_MS = str(2**63 - 1)
"""Distance from the broker's clock: a record's timestamp is its event time, which may be years away."""
EXACT = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": ANY_TIME_MS,
    "message.timestamp.after.max.ms": ANY_TIME_MS,
}
SIZED = {"max.message.bytes": str(TOPIC_BYTES)}
"""Of these options more is fine."""
UNTRIMMED = {"retention.bytes": "-1"}
"""Brokers may limit the bytes of every partition (log.retention.bytes), and would delete records that were not read."""
COMPACT = {"segment.bytes": str(64 * 2**20), "min.cleanable.dirty.ratio": "0.3"}


@dataclass(frozen=True)
class TopicSpec:
    """What one topic should be."""

    name: str
    partitions: int
    replication_factor: int
    options: Mapping[str, str]
    """Options of the topic, by Kafka's names."""
    verified: frozenset[str]
    """Those that an existing topic must have: results depend on them, or the user asked for them."""


@dataclass(frozen=True)
class Report:
    """Full names of the topics that were created, and of those that were there."""

    created: tuple[str, ...]
    existing: tuple[str, ...]


def desired_topics(settings: PipelineSettings, source_partitions: int) -> list[TopicSpec]:
    """Say what the pipeline's own topics should be, in data order; the source topic has `source_partitions`."""
    check_limit(source_partitions, settings.source.topic)
    configured = {kind: count for kind, (_, count) in _configured(settings).items()}
    partitions = {"source": source_partitions, "one": 1, **configured}
    return [
        TopicSpec(
            name=settings.topic(topic.name),
            partitions=partitions[topic.partitions],
            replication_factor=settings.topics.replication_factor,
            options=_options(topic, settings),
            verified=frozenset({"cleanup.policy", *_needed(topic), *settings.topics.options.get(topic.name, {})}),
        )
        for topic in topology.TOPICS
    ]


def _needed(topic: topology.Topic) -> dict[str, str]:
    """Return the options that exact results need. Records of public topics are small, and no stage reads them."""
    if topic.public:
        return EXACT
    return EXACT | SIZED | (UNTRIMMED if topic.cleanup == "delete" else {})


def _configured(settings: PipelineSettings) -> dict[str, tuple[str, int]]:
    """Map the kinds of partition counts that are settings to path and value."""
    return {
        "max_workers": ("worker_input.max_workers", settings.worker_input.max_workers),
        "aggregator": ("topics.aggregator_partitions", settings.topics.aggregator_partitions),
    }


def _options(topic: topology.Topic, settings: PipelineSettings) -> dict[str, str]:
    options = {"cleanup.policy": topic.cleanup, **EXACT, **SIZED}
    if topic.cleanup == "compact":
        options |= COMPACT
    else:
        # Public records carry event time: deletion by age would take the answers about the past at once.
        options["retention.ms"] = "-1" if topic.public else str(round(settings.topics.internal_retention_s * 1000))
        options |= UNTRIMMED
    return options | settings.topics.options.get(topic.name, {})


def apply(settings: PipelineSettings) -> Report:
    """Create the topics that are missing and verify the others, which are never changed.

    Safe to run twice at once. Raises CheckFailedError with every difference, BrokerError when the source topic is
    missing or the broker refuses, UnreachableError when none answers within `kafka.timeout_s`.
    """
    admin = Admin(settings.kafka)
    wanted, found = _compare(admin, settings)
    _raise(_differences(wanted, found), settings)
    missing = [spec for spec in wanted if spec.name not in found]
    created = [
        spec.name for spec in missing if admin.create(spec.name, spec.partitions, spec.replication_factor, spec.options)
    ]
    if missing:
        admin.wait_for_leaders({spec.name: spec.partitions for spec in wanted})
        check(settings)
    return Report(tuple(created), tuple(spec.name for spec in wanted if spec.name not in created))


def check(settings: PipelineSettings) -> Report:
    """Verify the topics and change nothing; raises as `apply` does, a missing topic is a difference too."""
    wanted, found = _compare(Admin(settings.kafka), settings)
    missing = [
        f"{spec.name}: is missing; `skewless topics apply` creates it" for spec in wanted if spec.name not in found
    ]
    _raise([*missing, *_differences(wanted, found)], settings)
    return Report((), tuple(spec.name for spec in wanted))


def partition_count(settings: PipelineSettings, topic: str) -> int:
    """Return the number of partitions of a topic by its full name; BrokerError when it does not exist."""
    return _partition_counts(settings, topic)[topic]


def stage_partitions(settings: PipelineSettings, stage: topology.Stage) -> int:
    """Return the number of partitions of the topic that a stage reads.

    Compares all topics of the pipeline that the stage may see. Raises ConfigurationError when settings differ from the
    topics, BrokerError when a topic does not exist or the source has grown. `tuples` stands in for a source that the
    stage may not see.
    """
    reads = settings.topic(stage.source)
    counts = _partition_counts(settings, reads)
    source, tuples = settings.source.topic, settings.topic("tuples")
    measure = source if source in counts else tuples
    check_limit(counts.get(measure, 0), measure)
    for topic in topology.TOPICS:
        name = settings.topic(topic.name)
        if topic.partitions == "source" and {name, measure} <= counts.keys():
            check_same(counts[name], counts[measure], f"topic {name}", f"topic {measure}")
    if problems := list(_other_counts(settings, counts)):
        raise ConfigurationError(*problems)
    return counts[reads]


def _other_counts(settings: PipelineSettings, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each setting that differs from the partition counts of its topics."""
    for kind, (path, wanted) in _configured(settings).items():
        names = [settings.topic(topic.name) for topic in topology.TOPICS if topic.partitions == kind]
        different = {name: counts[name] for name in names if counts.get(name, wanted) != wanted}
        if different:
            found = ", ".join(f"topic {name} has {count}" for name, count in different.items())
            yield (
                f"{path}: is {wanted}, but {found} partitions; set it back, or give the pipeline "
                "another name: the number cannot change while results must stay exact"
            )


def check_same(count: int, wanted: int, what: str, other: str) -> None:
    """Raise BrokerError when two numbers of partitions differ that have to be the same."""
    if count != wanted:
        raise BrokerError(
            f"{what} has {count} partitions, {other} has {wanted}: a source cannot grow while results must stay exact; "
            "`skewless topics apply` names all topics that differ, and says what to do about each"
        )


def check_limit(count: int, topic: str) -> None:
    """Raise ConfigurationError when the source, or the topic with its tuples, has too many partitions."""
    if count > MAX_ORIGINS:
        # A worker's checkpoint holds a watermark for each of them, in the 4,096 bytes that Kafka gives to an offset.
        raise ConfigurationError(
            f"source.topic: topic {topic} has {count} partitions, a pipeline can follow at most {MAX_ORIGINS}: "
            "use a source topic with fewer partitions"
        )


def _partition_counts(settings: PipelineSettings, topic: str) -> dict[str, int]:
    admin = Admin(settings.kafka)
    counts = admin.partition_counts()
    if topic not in counts:
        admin.check_visible([topic])
        create = (
            f"create it, as in `kafka-topics.sh --bootstrap-server {settings.kafka.bootstrap_servers} --create "
            f"--topic {topic} --partitions 8`, or correct source.topic"
            if topic == settings.source.topic
            else "`skewless topics apply` creates it"
        )
        raise BrokerError(f"topic {topic} does not exist at {settings.kafka.bootstrap_servers}: {create}")
    return counts


def _compare(admin: Admin, settings: PipelineSettings) -> tuple[list[TopicSpec], dict[str, Found]]:
    wanted = desired_topics(settings, partition_count(settings, settings.source.topic))
    found = admin.describe([spec.name for spec in wanted])
    admin.check_visible(spec.name for spec in wanted if spec.name not in found)
    return wanted, found


def _differences(wanted: list[TopicSpec], found: Mapping[str, Found]) -> list[str]:
    return [line for spec in wanted if spec.name in found for line in differences(spec, found[spec.name])]


def differences(spec: TopicSpec, found: Found) -> Iterator[str]:
    """Say in what an existing topic differs from what it should be, and what to do about each."""
    if found.partitions != spec.partitions:
        yield (
            f"{spec.name}: has {found.partitions} partitions, the configuration wants {spec.partitions}; set it back, "
            "or start a pipeline of another name: the number cannot change while results must stay exact"
        )
    if found.replication_factor < spec.replication_factor:
        yield (
            f"{spec.name}: has {found.replication_factor} copies, topics.replication_factor wants "
            f"{spec.replication_factor}; add some with kafka-reassign-partitions.sh"
        )
    for option in sorted(spec.verified):
        has, wants = found.options.get(option), spec.options[option]
        at_least = "at least " if option in SIZED else ""
        if has != wants and not (at_least and _is_more(has, wants)):
            yield (
                f"{spec.name}: {option} is {has}, should be {at_least}{wants}; `kafka-configs.sh --alter --entity-type "
                f"topics --entity-name {spec.name} --add-config {option}={wants}`"
            )


def _is_more(has: str | None, wants: str) -> bool:
    return has is not None and has.isdigit() and wants.isdigit() and int(has) > int(wants)


def _raise(found: list[str], settings: PipelineSettings) -> None:
    if found:
        raise CheckFailedError(
            f"topics of pipeline {settings.name} at {settings.kafka.bootstrap_servers} are not as configured:\n  "
            + "\n  ".join(found)
        )
