"""Derives the topics of a pipeline from its settings, and creates or verifies them on a broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from skewless import topology
from skewless.algorithms.watermark import MAX_SOURCE_PARTITIONS
from skewless.config.pipeline_settings import PipelineSettings, SourceSettings
from skewless.errors import BrokerError, CheckFailedError, ConfigurationError
from skewless.kafka.admin.client import Admin, TopicDescription
from skewless.kafka.admin.topic_options import COMPACTION_OPTIONS, OPTIONAL
from skewless.kafka.admin.topics import (
    EVENT_TIME_OPTIONS,
    MESSAGE_SIZE_OPTIONS,
    Report,
    TopicSpec,
    differences,
    replication_warnings,
    require_equal_partitions,
    short_retentions,
    timestamp_warnings,
)
from skewless.stages.router.settings import DEFAULT_MAX_WORKERS
from skewless.stages.source_topics import check_source_topics

log = logging.getLogger(__name__)

NO_SIZE_RETENTION = {"retention.bytes": "-1"}
"""Disables retention by size. A broker's default (log.retention.bytes) could delete records that were not read yet."""
DELETE_RETENTION_MS = str(7 * 86_400_000)
"""Time for which a deletion of a result can be read, as long as brokers keep the offsets of a stopped stage."""
DEFAULT_PARTITIONS = 8
"""Number of partitions in the command that creates a topic of the user."""
MAX_SEGMENT_MS = 7 * 86_400_000
"""Kafka's default of segment.ms. Records are deleted by segments, so a shorter retention needs shorter segments."""


def desired_topics(settings: PipelineSettings, source_partitions: int, join_partitions: int = 1) -> list[TopicSpec]:
    """Return the specifications of the pipeline's own topics, in data order."""
    if settings.source is not None:
        check_limit(source_partitions, settings.topic("tuples"))
    return [
        topic_spec(topic, settings, source_partitions, join_partitions) for topic in topology.needed_topics(settings)
    ]


def topic_spec(
    topic: topology.Topic, settings: PipelineSettings, source_partitions: int, join_partitions: int = 1
) -> TopicSpec:
    """Return the specification of a topic. `join_partitions` is the number of partitions of the joined topics."""
    configured = {kind: count for kind, (_, count) in _configured_counts(settings).items()}
    partitions = {"source": source_partitions, "join": join_partitions, "one": 1, **configured}
    of_user = settings.topics.options.get(topic.name, {}).keys()
    return TopicSpec(
        name=settings.topic(topic.name),
        partitions=partitions[topic.partitions],
        replication_factor=settings.topics.replication_factor,
        options=_options(topic, settings),
        verified=frozenset(
            {
                "cleanup.policy",
                *_required_options(topic),
                *({"retention.ms"} & results_retention(topic, settings).keys()),
                *of_user,
            }
        ),
        optional=frozenset(OPTIONAL.keys() - of_user),
    )


def _required_options(topic: topology.Topic) -> dict[str, str]:
    """Return the options that exact results require."""
    if topic.public:  # its records are small, and users decide how long it keeps them
        return EVENT_TIME_OPTIONS
    return EVENT_TIME_OPTIONS | MESSAGE_SIZE_OPTIONS | (NO_SIZE_RETENTION if topic.cleanup == "delete" else {})


def _configured_counts(settings: PipelineSettings) -> dict[str, tuple[str, int]]:
    """Return the partition counts that are settings, as path and value, by `Topic.partitions`."""
    tuples_partitions = settings.topics.tuples_partitions
    return {
        "max_workers": ("worker_input.max_workers", settings.worker_input.partitions),
        "aggregator": ("topics.aggregator_partitions", settings.topics.aggregator_partitions),
        **({} if tuples_partitions is None else {"source": ("topics.tuples_partitions", tuples_partitions)}),
    }


def _options(topic: topology.Topic, settings: PipelineSettings) -> dict[str, str]:
    options = {"cleanup.policy": topic.cleanup, **EVENT_TIME_OPTIONS, **MESSAGE_SIZE_OPTIONS}
    if topic.cleanup == "compact":
        options |= COMPACTION_OPTIONS | results_retention(topic, settings)
        if topic.public:  # a reader that is stopped for longer misses deletions, and keeps results that are gone
            options["delete.retention.ms"] = DELETE_RETENTION_MS
    else:
        # The timestamp of public records is their event time, so retention by time would delete old results at once.
        options["retention.ms"] = "-1" if topic.public else str(round(settings.topics.internal_retention_s * 1000))
        options |= NO_SIZE_RETENTION
    return options | settings.topics.options.get(topic.name, {})


def results_retention(topic: topology.Topic, settings: PipelineSettings) -> dict[str, str]:
    """Return the options of a topic of results that deletes old ones; none if it keeps all, and for other topics."""
    seconds = settings.topics.results_retention_s
    if seconds is None or not (topic.public and topic.cleanup == "compact"):
        return {}
    retention_ms = round(seconds * 1000)
    return {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(retention_ms),
        "segment.ms": str(min(retention_ms, MAX_SEGMENT_MS)),
        **NO_SIZE_RETENTION,
    }


def apply(settings: PipelineSettings) -> Report:
    """Create missing topics and verify the others. Existing topics are never changed.

    Two concurrent calls are safe. Raises CheckFailedError with all differences, BrokerError if the source topic does
    not exist or the broker refuses an operation, and UnreachableError if no broker responds within
    `kafka.connect_timeout_s`.
    """
    admin = Admin(settings.kafka)
    settings = with_max_workers(settings, admin.partition_counts())
    specs, existing = _describe(admin, settings)
    _raise_if_any(_differences(specs, existing), settings)
    missing = [spec for spec in specs if spec.name not in existing]
    created = [
        spec.name
        for spec in missing
        if admin.create(spec.name, spec.partitions, spec.replication_factor, spec.options, spec.optional)
    ]
    if missing:
        admin.wait_for_leaders({spec.name: spec.partitions for spec in specs})
        existing = _verified(admin, settings)
    return _report(admin, settings, created, existing)


def planned(settings: PipelineSettings) -> tuple[list[TopicSpec], Mapping[str, TopicDescription]]:
    """Return what `apply` would verify or create: all topics, and those that exist by name. Raises its errors."""
    admin = Admin(settings.kafka)
    settings = with_max_workers(settings, admin.partition_counts())
    specs, existing = _describe(admin, settings)
    _raise_if_any(_differences(specs, existing), settings)
    return specs, existing


def for_new_topics(settings: PipelineSettings) -> PipelineSettings:
    """Return the settings with which `apply` creates all topics after the existing ones are removed.

    `worker_input.max_workers` gets its value from the existing topics if it is unset. Raises the errors of `apply`,
    also those of brokers that would refuse a topic. Changes nothing.
    """
    admin = Admin(settings.kafka)
    settings = with_max_workers(settings, admin.partition_counts())
    own = set(settings.own_topics)
    counts = {name: count for name, count in _user_counts(settings).items() if name not in own}
    for spec in _specs(admin, settings, counts):
        admin.create(spec.name, spec.partitions, spec.replication_factor, spec.options, spec.optional, only_check=True)
    return settings


def check(settings: PipelineSettings) -> Report:
    """Verify the topics without any change.

    Raises the errors of `apply`. A missing topic is a difference, and so is one with a short retention.
    """
    admin = Admin(settings.kafka)
    settings = with_max_workers(settings, admin.partition_counts())
    existing = _verified(admin, settings)
    _raise_if_any(list(_short_retentions(settings, existing)), settings)
    return _report(admin, settings, (), existing)


def with_max_workers(
    settings: PipelineSettings, counts: Mapping[str, int], committed: Callable[[], int | None] = lambda: None
) -> PipelineSettings:
    """Return the settings with `worker_input.max_workers`, if it is unset and the pipeline has an aggregation.

    It is the number of partitions of topic worker-input in `counts`, the visible topics. If the topic is not visible,
    it is the result of `committed`, the number with which the stage has run before, or else the default. Raises
    ConfigurationError if `router.workers` is more.
    """
    if settings.worker_input.max_workers is not None or settings.source is None:
        return settings
    topic = settings.topic("worker-input")
    found = counts.get(topic) or committed()
    max_workers = DEFAULT_MAX_WORKERS if found is None else found
    if settings.router.workers > max_workers:
        workers = settings.router.workers
        if found:
            raise ConfigurationError(
                f"router.workers: {workers} is more than the {found} partitions of topic {topic}, set at most {found}"
            )
        raise ConfigurationError(
            f"{workers_above_default(workers)}; set worker_input.max_workers to at least {workers}"
        )
    if max_workers != DEFAULT_MAX_WORKERS:
        log.info("worker_input.max_workers is unset, so it is %d as before", max_workers)
    return settings.with_max_workers(max_workers)


def workers_above_default(workers: int) -> str:
    """Return the first part of a message about `router.workers` if the pipeline has no maximum of its own."""
    return f"router.workers: {workers} is more than the default of worker_input.max_workers, {DEFAULT_MAX_WORKERS}"


def _verified(admin: Admin, settings: PipelineSettings) -> dict[str, TopicDescription]:
    """Return the descriptions of all topics. Raises CheckFailedError with all differences."""
    specs, existing = _describe(admin, settings, wait_for_all=True)
    missing = [
        f"{spec.name}: is missing; `skewless topics apply` creates it" for spec in specs if spec.name not in existing
    ]
    _raise_if_any([*missing, *_differences(specs, existing)], settings)
    return existing


def _short_retentions(settings: PipelineSettings, topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    """Yield a line for each topic that keeps records for less than `topics.internal_retention_s`.

    A pipeline runs without this retention, for example after the setting was changed, so only `check` refuses it.
    """
    required_ms = {
        settings.topic(topic.name): round(settings.topics.internal_retention_s * 1000)
        for topic in topology.needed_topics(settings)
        if topic.cleanup == "delete" and not topic.public
        if "retention.ms" not in settings.topics.options.get(topic.name, {})
    }
    return short_retentions(required_ms, topics)


def _report(
    admin: Admin, settings: PipelineSettings, created: Sequence[str], topics: Mapping[str, TopicDescription]
) -> Report:
    earlier = tuple(name for name in topics if name not in created)
    warnings = (
        *replication_warnings(topics, admin.broker_count()),
        *timestamp_warnings(topics),
        *_short_retentions(settings, topics),
    )
    return Report(tuple(created), earlier, topics, warnings)


def require_topic(settings: PipelineSettings, topic: str) -> None:
    """Raise BrokerError if a topic of the pipeline, given by its name in the topology, does not exist."""
    _partition_counts(settings, settings.topic(topic))


def check_stage(settings: PipelineSettings, stage: topology.Stage, counts: Mapping[str, int]) -> None:
    """Check `counts`, the partition counts of all topics that a stage is allowed to describe.

    Raises ConfigurationError if settings differ from the topics, and BrokerError if an input topic does not exist or
    partitions were added to a topic of the pipeline.
    """
    for name in stage.inputs_of(settings):
        _visible(settings, name, counts)
    references = {}
    # Without a source, the topics that have its number of partitions have that of the joined topics.
    if joined := _most_partitions(settings, counts):
        references = dict.fromkeys(("source", "join"), joined)
    _refuse(_joined_partitions_problems(settings, counts))
    if "left" in stage.inputs_of(settings):
        _refuse(_retention_problems(settings, Admin(settings.kafka)))
    if settings.source is not None:
        tuples = references["source"] = settings.topic("tuples")
        check_limit(counts.get(tuples, 0), tuples)
        if "events" in stage.inputs_of(settings):
            events, enriched = settings.topic("events"), settings.topic("enriched")
            check_visible(settings, counts, enriched)
            require_equal_partitions(counts[enriched], counts[events], f"topic {enriched}", f"topic {events}")
            check_visible(settings, counts, *settings.table_topics.values())
            _refuse(_table_problems(settings, Admin(settings.kafka)))
        if "source" in stage.inputs_of(settings):
            _check_sources(settings, tuples, counts)
    for topic in topology.needed_topics(settings):
        name, equal = settings.topic(topic.name), references.get(topic.partitions)
        if equal is not None and {name, equal} <= counts.keys():
            require_equal_partitions(counts[name], counts[equal], f"topic {name}", f"topic {equal}")
    if problems := list(_changed_counts(settings, counts)):
        raise ConfigurationError(*problems)


def _check_sources(settings: PipelineSettings, tuples: str, counts: Mapping[str, int]) -> None:
    """Check the partition counts of the source topics, and `source.skip_to`. `tuples` is the full name of its topic."""
    check_visible(settings, counts, tuples)
    sources = {topic: counts[topic] for topic in settings.full_names("source", counts)}
    check_source_topics(sources, counts[tuples])
    if problems := list(_skip_to_problems(settings.aggregated, sources)):
        raise ConfigurationError(*problems)


def _skip_to_problems(source: SourceSettings, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each partition of `source.skip_to` that does not exist. `counts` are those of source topics."""
    for key in source.skip_to:
        name, _, partition = key.rpartition("/")
        topic = name or str(source)
        if int(partition) >= counts.get(topic, 0):
            found = f"has {counts[topic]} partitions" if topic in counts else "does not exist"
            yield f"source.skip_to.{key}: topic {topic} {found}; correct the name, or remove it"


def _visible(settings: PipelineSettings, name: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the full names of a topic of the topology, which are visible. `counts` has the visible topics."""
    topics = settings.full_names(name, counts)
    if not topics:
        raise ConfigurationError(
            f"source.topics.match: matches no topic at {settings.kafka.bootstrap_servers}; create one, or correct the "
            "pattern"
        )
    check_visible(settings, counts, *topics)
    return topics


def source_topics(settings: PipelineSettings) -> tuple[str, ...]:
    """Return the source topics. Raises ConfigurationError for a pattern that matches no topic, BrokerError otherwise.

    Without a pattern, a topic need not exist.
    """
    if not settings.source_pattern:
        return settings.aggregated.select(())
    return _visible(settings, "source", Admin(settings.kafka).partition_counts())


def user_topics(settings: PipelineSettings) -> list[str]:
    """Return the topics of the user that the pipeline reads."""
    matching = source_topics(settings) if settings.source_pattern else ()
    return [*matching, *settings.user_topics.values()]


def joined_topics_problems(settings: PipelineSettings) -> list[str]:
    """Return a line for each property of the joined topics with which the join does not start.

    Raises BrokerError if one of the topics does not exist.
    """
    counts = _partition_counts(settings, *_joined_topics(settings))
    return [*_joined_partitions_problems(settings, counts), *_retention_problems(settings, Admin(settings.kafka))]


def _joined_topics(settings: PipelineSettings) -> list[str]:
    return [side.topic for side in settings.sides.values()]


def _most_partitions(settings: PipelineSettings, counts: Mapping[str, int]) -> str | None:
    """Return the joined topic with most partitions, as many as the outputs have. None if one is not visible."""
    topics = _joined_topics(settings)
    return max(topics, key=counts.__getitem__, default=None) if counts.keys() >= set(topics) else None


def _refuse(problems: Iterator[str]) -> None:
    """Raise BrokerError for the first problem."""
    for problem in problems:
        raise BrokerError(problem)


def _joined_partitions_problems(settings: PipelineSettings, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a line if the joined topics have different numbers of partitions, or too many."""
    found = [(topic, counts[topic]) for topic in _joined_topics(settings) if topic in counts]
    if topology.REPARTITIONED.holds(settings):
        yield from (_above_limit(count, topic) for topic, count in found if count > MAX_SOURCE_PARTITIONS)
    elif len({count for _, count in found}) > 1:
        (left, left_count), (right, right_count) = found
        yield (
            f"topic {left} has {left_count} partitions and topic {right} has {right_count}: the join reads an id from "
            "the same partition number of both. Set join.repartition: always"
        )


def _retention_problems(settings: PipelineSettings, admin: Admin) -> Iterator[str]:
    """Yield a line for each joined topic that may lose waiting records: a restart reads them again."""
    if topology.REPARTITIONED.holds(settings):
        return  # they wait in topics of the pipeline
    for topic, found in admin.describe(_joined_topics(settings)).items():
        required_ms = settings.joined.rules().retention_ms
        if "compact" in found.options["cleanup.policy"]:
            yield (
                f"topic {topic} is compacted, so it may lose records that wait for a partner: set its option "
                "cleanup.policy to delete"
            )
        retention_ms = int(found.options["retention.ms"])
        if 0 <= retention_ms < required_ms:
            yield (
                f"topic {topic} keeps records for {retention_ms / 1000:g} s (retention.ms). join.sync_delay_s and "
                f"join.window_s are {required_ms / 1000:g} s together, so records that wait for a partner would be "
                f"lost: set retention.ms to at least {required_ms}"
            )


def _table_problems(settings: PipelineSettings, admin: Admin) -> Iterator[str]:
    """Yield a line for each table that loses rows with time."""
    for topic, found in admin.describe(settings.table_topics.values()).items():
        retention_ms = int(found.options["retention.ms"])
        if "delete" in found.options["cleanup.policy"] and retention_ms >= 0:
            yield (
                f"topic {topic} deletes rows after {retention_ms / 1000:g} s (retention.ms), and a table must keep the "
                "last row of each key: set its option cleanup.policy to compact"
            )


def _changed_counts(settings: PipelineSettings, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each setting that differs from the partition counts of its topics."""
    for kind, (path, configured) in _configured_counts(settings).items():
        names = [settings.topic(topic.name) for topic in topology.needed_topics(settings) if topic.partitions == kind]
        different = {name: counts[name] for name in names if counts.get(name, configured) != configured}
        if different:
            actual = ", ".join(f"topic {name} has {count}" for name, count in different.items())
            yield (
                f"{path}: is {configured}, but {actual} partitions; set it back, or give the pipeline "
                "another name: with another number of partitions, results would not be exact"
            )


def check_limit(count: int, topic: str) -> None:
    """Raise ConfigurationError if `count`, the number of partitions of topic `tuples`, is above the maximum.

    `topic` is its full name.
    """
    if count > MAX_SOURCE_PARTITIONS:
        raise ConfigurationError(_above_limit(count, topic))


def _above_limit(count: int, topic: str) -> str:
    # A checkpoint of a worker or of a join has a watermark for each, and Kafka limits the metadata of an offset to
    # 4,096 bytes.
    return (
        f"topic {topic} has {count} partitions, the maximum is {MAX_SOURCE_PARTITIONS}: use source topics with "
        "fewer partitions"
    )


def _partition_counts(settings: PipelineSettings, *topics: str) -> dict[str, int]:
    admin = Admin(settings.kafka)
    counts = admin.partition_counts(needed=topics)
    check_visible(settings, counts, *topics)
    return counts


def check_visible(settings: PipelineSettings, counts: Mapping[str, int], *topics: str) -> None:
    """Raise BrokerError for a topic that is not among the visible ones."""
    for topic in topics:
        if topic in counts:
            continue
        Admin(settings.kafka).check_visible([topic])
        joined = _joined_topics(settings)
        # The two sides of a join have to fit together.
        partitions = next((counts[side] for side in joined if topic in joined and side in counts), DEFAULT_PARTITIONS)
        paths = {name: path for path, name in (settings.user_topics | settings.table_topics).items()}
        remedy = (
            f"create it, for example with `kafka-topics.sh --bootstrap-server {settings.kafka.bootstrap_servers} "
            f"--create --topic {topic} --partitions {partitions}`, or correct {paths[topic]}"
            if topic in paths
            else "`skewless up` and `skewless topics apply` create it"
        )
        raise BrokerError(f"topic {topic} does not exist at {settings.kafka.bootstrap_servers}: {remedy}")


def _describe(
    admin: Admin, settings: PipelineSettings, *, wait_for_all: bool = False
) -> tuple[list[TopicSpec], dict[str, TopicDescription]]:
    """Return the specifications of all topics, and the descriptions of those that exist by name; see `describe`."""
    specs = _specs(admin, settings, _user_counts(settings))
    existing = admin.describe([spec.name for spec in specs], wait_for_all=wait_for_all)
    admin.check_visible(spec.name for spec in specs if spec.name not in existing)
    return specs, existing


def _user_counts(settings: PipelineSettings) -> dict[str, int]:
    """Return the partition counts of all visible topics. Raises BrokerError if a topic of the user is missing."""
    return _partition_counts(settings, *settings.user_topics.values(), *settings.table_topics.values())


def _specs(admin: Admin, settings: PipelineSettings, counts: Mapping[str, int]) -> list[TopicSpec]:
    """Return the specifications of all topics. `counts` are the partition counts of the existing ones."""
    _refuse(_joined_partitions_problems(settings, counts))
    _refuse(_retention_problems(settings, admin))
    _refuse(_table_problems(settings, admin))
    largest = _most_partitions(settings, counts)
    join_partitions = counts[largest] if largest else 1
    if settings.source is None:
        tuples_partitions, of_tuples = join_partitions, largest
    else:
        tuples_partitions, of_tuples = _tuples_partitions(settings, counts, join_partitions)
    partitions_of = {"join": largest, "source": of_tuples}
    specs = desired_topics(settings, tuples_partitions, join_partitions)
    return [
        replace(spec, partitions_of=partitions_of.get(topic.partitions))
        for topic, spec in zip(topology.needed_topics(settings), specs, strict=True)
    ]


def _tuples_partitions(
    settings: PipelineSettings, counts: Mapping[str, int], join_partitions: int
) -> tuple[int, str | None]:
    """Return the number of partitions of the topics that have as many as `tuples`, and the topic that has this number.

    The topic is None if the number is a setting.
    """
    # If the source is the pipeline's own topic, this call may have to create it.
    visible = {settings.topic("joined"): join_partitions, **counts}
    if settings.enrich is not None:
        visible.setdefault(settings.topic("enriched"), counts[settings.enrich.topic])
    sources = {topic: visible[topic] for topic in _visible(settings, "source", visible)}
    equal = settings.topic("tuples")
    if settings.enrich is not None:
        equal = settings.enrich.topic  # all have its number, because the records keep their partitions
    elif equal not in counts:
        equal = max(sources, key=sources.__getitem__)
    configured = settings.topics.tuples_partitions
    partitions = configured or visible[equal]
    check_source_topics(sources, partitions)
    return partitions, None if configured else equal


def _differences(specs: list[TopicSpec], existing: Mapping[str, TopicDescription]) -> list[str]:
    return [line for spec in specs if spec.name in existing for line in differences(spec, existing[spec.name])]


def _raise_if_any(problems: list[str], settings: PipelineSettings) -> None:
    if problems:
        raise CheckFailedError(
            f"topics of pipeline {settings.name} at {settings.kafka.bootstrap_servers} are not as configured:\n  "
            + "\n  ".join(problems)
        )
