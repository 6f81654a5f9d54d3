"""Start of `skewless stream`: which settings it honours, and where it continues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from skewless import topology
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings, TopicPattern
from skewless.config.stage_start import StageStart, resolve
from skewless.config.state_layout import state_schema_of
from skewless.engine.start_checks import (
    AFTER_LOST_OFFSETS,
    Input,
    check_first_start,
    check_log_ranges,
    check_topic_id,
    checkpoints_of,
    created_again,
)
from skewless.errors import BrokerError, CheckFailedError, ConfigurationError, FencedError
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.broker_queries import LogRange
from skewless.kafka.consumer.idle_member import IdleMember
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_ids import wait_for_topic_ids
from skewless.operations.reset import wait_until_stopped
from skewless.stages.splitter.builder import without_local_aggregation
from skewless.stages.splitter.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from skewless.wire.changelog import WindowCheckpoint
from skewless.wire.changelog import decode_checkpoint as decode_window_checkpoint
from skewless.wire.offset_metadata import encode_offset_metadata
from skewless.wire.state_schema import StateSchema
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

STAGES_ONLY = ("router", "worker", "replicas", "metrics", "tracing")
"""Sections of a pipeline file that only the stages read."""
BY_SOURCE = "source"
"""Name in `distribution` of the grouping of a query without a cost per tuple: a worker per source partition."""
LOAD_STAGE = topology.writer("distribution").name
"""Stage that measures the load."""
_PYTHON_ONLY = re.compile(r"\(\?(?:[P(#]|[a-z]*a)|\{,")
"""What regular expressions of Python have, and those of Java do not: names of groups, conditions, comments, the flag
`a`, and `{,n}`."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is committed of a source partition."""

    offset: int
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A pipeline with all that its query needs."""

    settings: PipelineSettings
    """Settings of the tasks: without local aggregation, because a task sends partials."""
    schema: StateSchema
    partition_counts: Mapping[str, int]
    """Number of partitions by full name of topic."""
    topic_ids: Mapping[str, int]
    sources: Mapping[TopicPartition, SourceState]
    batch: str
    """Last micro-batch that is complete, in all source partitions. Empty before the first one."""
    merged: Mapping[int, str]
    """Last micro-batch by task that merges: a partition of `aggregates`, or the next number, which measures the load.
    Some may have one more than `batch`."""


def check_settings(settings: PipelineSettings) -> None:
    """Raise ConfigurationError for settings whose results a query would not give."""
    if problems := list(_refusals(settings)):
        raise ConfigurationError(*problems)


def _refusals(settings: PipelineSettings) -> Iterator[str]:
    only_stages = "and only the stages do that (`skewless up`)"
    if settings.join is not None:
        yield f"join: `skewless stream` does not join topics, {only_stages}"
    if settings.enrich is not None:
        yield f"enrich: `skewless stream` does not add fields, {only_stages}"
    if settings.aggregator.top is not None:
        yield f"aggregator.top: `skewless stream` does not rank keys, {only_stages}"
    if settings.source is None:
        return
    if settings.sink is not None and settings.sink.mode == "merge":
        yield f"sink.mode: merge stores the partials of workers, {only_stages}; use mode: replace"
    if settings.mirror is not None and settings.mirror.topic == "partials":
        yield f"mirror.topic: partials copies the partials of workers, {only_stages}; use topic: aggregates"
    if settings.worker_input.encoding == "record":
        yield f"worker_input.encoding: record writes each tuple for other consumers, {only_stages}"
    if settings.aggregator.emit_interval_s:
        yield "aggregator.emit_interval_s: results are emitted once per micro-batch: remove it, and set --trigger"
    if settings.source.skip_to:
        yield f"source.skip_to: skips records that were deleted, {only_stages}"
    yield from _java_problems(settings.source.topics)


def _java_problems(topics: object) -> Iterator[str]:
    if isinstance(topics, TopicPattern) and (found := _PYTHON_ONLY.search(topics.match)):
        yield f"source.topics.match: Spark reads it as a regular expression of Java, which has no {found[0]}: remove it"


def unused_settings(settings: PipelineSettings) -> list[str]:
    """Return the settings of a file that mean nothing to a query. No result depends on them."""
    used = () if settings.worker.cost.is_free else ("router", "worker")
    unused = [name for name in STAGES_ONLY if name in settings.model_fields_set and name not in used]
    splitter, event_time, transport = settings.splitter, settings.event_time, settings.transport
    return [
        *unused,
        *(["splitter.local"] if splitter.local.mode != "none" else []),
        *(["event_time.max_watermark_drift_s"] if event_time.max_watermark_drift_s is not None else []),
        *(["transport.guarantee (always exactly_once)"] if transport.guarantee != "exactly_once" else []),
    ]


def prepare(settings: PipelineSettings, report: Callable[[str], None]) -> StreamStart:
    """Create the topics, and return where the pipeline continues. Its first start is committed.

    Raises FencedError if stages of the pipeline run, ConfigurationError if it was last run with other settings or by
    the stages, and BrokerError if records were deleted before they were read, or a topic was created again. `report` is
    called with a line if it waits for the sessions of stopped processes.
    """
    check_settings(settings)
    topic_plan.apply(settings)
    splitter = resolve(topology.stage(topology.SOURCE_STAGE), settings, drain=False)
    aggregator = resolve(topology.stage(topology.RESULTS_STAGE), splitter.settings, drain=False)
    settings = splitter.settings
    _wait_for_stages(settings, report)
    schema = msgspec.structs.replace(state_schema_of(settings), engine="spark")
    inputs = _inputs(splitter, schema)
    (partials,) = (replace(source, state_schema=schema) for source in aggregator.inputs())
    kafka, topics = settings.kafka, [source.topic for source in (*inputs, partials)]
    ids = wait_for_topic_ids(kafka.client_options(), topics, kafka.connect_timeout_s)
    offsets = OffsetReader(settings.kafka)
    if not any(offsets.committed(source.group, source.topic) for source in inputs):
        _commit_first(offsets, settings, aggregator, inputs, partials, ids)
    merged = {
        partition: decode_window_checkpoint(checkpoint.step_checkpoint).batch or ""
        for partition, checkpoint in checkpoints_of(partials, offsets.committed(partials.group, partials.topic)).items()
    }
    for committed in offsets.committed(settings.group(LOAD_STAGE), partials.topic).values():
        merged[settings.topics.aggregator_partitions] = decode_window_checkpoint(committed.checkpoint).batch or ""
    sources: dict[TopicPartition, SourceState] = {}
    for source in inputs:
        sources |= _sources(offsets, source, ids.get(source.topic))
    batches = {state.checkpoint.batch or "" for state in sources.values() if state.checkpoint.batch is not None}
    unknown = [partition for partition in range(settings.topics.aggregator_partitions) if partition not in merged]
    if unknown and any(batches):
        raise BrokerError(
            f"group {partials.group} has no offset of topic {partials.topic} in partitions "
            f"{', '.join(map(str, unknown))}, and micro-batch {', '.join(sorted(batches))} is complete: the offsets "
            f"were deleted or have expired. {AFTER_LOST_OFFSETS}"
        )
    if len(batches) > 1:
        raise ConfigurationError(
            f"group {splitter.group} has checkpoints of several micro-batches ({', '.join(sorted(batches))}): its "
            "offsets were changed by another program; give the pipeline another name"
        )
    return StreamStart(
        settings=_task_settings(settings),
        schema=schema,
        partition_counts=splitter.partitions,
        topic_ids=ids,
        sources=sources,
        batch="".join(batches),
        merged=merged,
    )


def check_sources(start: StreamStart) -> None:
    """Raise BrokerError if records were deleted before the query has read them, or a topic was created again.

    Spark's own error for both names neither the cause nor what to do.
    """
    kafka, offsets = start.settings.kafka, OffsetReader(start.settings.kafka)
    counts = Admin(kafka).partition_counts()
    inputs = _inputs(StageStart(topology.stage(topology.SOURCE_STAGE), start.settings, counts), start.schema)
    ids = wait_for_topic_ids(kafka.client_options(), [source.topic for source in inputs], kafka.connect_timeout_s)
    check_topic_ids(start.topic_ids, ids)
    for source in inputs:
        _sources(offsets, source, ids.get(source.topic))


def partitions_gone(checkpoint: str, *, is_begun: bool = False) -> BrokerError:
    """Return the error of a checkpoint whose micro-batch Spark does not find in the source topics.

    `is_begun`: results of the micro-batch are committed.
    """
    remedy = (
        "Name it again until the micro-batch is complete, or remove all results with `skewless reset --to-start`"
        if is_begun
        else "Remove this folder, or name a new one with --checkpoint: the query then continues after its last "
        "micro-batch"
    )
    return BrokerError(
        f"the checkpoint {checkpoint} does not match the source: a source topic was deleted, the settings no longer "
        f"name it, or a new partition has lost its first records. {remedy}"
    )


def check_topic_ids(known: Mapping[str, int], found: Mapping[str, int]) -> None:
    """Raise BrokerError if a source topic was created again: what was read of it are not its next records."""
    for topic, topic_id in found.items():
        if known.get(topic, topic_id) != topic_id:
            raise created_again(topic, "while the query was reading it")


def _inputs(splitter: StageStart, schema: StateSchema) -> list[Input]:
    # As topics of another stage: the message for deleted records of a user's topic names source.skip_to.
    return [replace(source, state_schema=schema, kind="public") for source in splitter.inputs()]


def members_of(start: StreamStart) -> list[IdleMember]:
    """Return the memberships of the driver in the groups whose offsets the query commits.

    By them, other commands see that a query runs. And brokers remove the offsets of a group that has lost its last
    member, those of the stages, after `offsets.retention.minutes`, also if they are committed again and again.
    """
    settings, partials = start.settings, [start.settings.topic("partials")]
    topics = {
        topology.SOURCE_STAGE: sorted({source.topic for source in start.sources}),
        topology.RESULTS_STAGE: partials,
        LOAD_STAGE: partials,
    }
    name = f"{settings.full_name}-{topology.QUERY}"
    return [
        IdleMember(settings.kafka, settings.transport, settings.group(stage), name, topics[stage]) for stage in topics
    ]


def transactional_id(group: str, partition: int | None = None) -> str:
    """Return the transactional id with which a query commits the offsets of a group, or of one of its partitions."""
    return f"{group}-stream" if partition is None else f"{group}-stream-{partition}"


def _task_settings(settings: PipelineSettings) -> PipelineSettings:
    """Return the settings of the tasks. Without a cost per tuple, a task aggregates the tuples that it reads."""
    settings = without_local_aggregation(settings)
    if not settings.worker.cost.is_free:
        return settings
    return settings.model_copy(update={"router": settings.router.model_copy(update={"grouping": BY_SOURCE})})


def _wait_for_stages(settings: PipelineSettings, report: Callable[[str], None]) -> None:
    """Wait for the sessions of killed processes. Raises FencedError if stages run that a query replaces."""
    try:
        wait_until_stopped(settings, report, topology.QUERIED_STAGES, replaced=topology.QUERY)
    except CheckFailedError as error:
        raise FencedError(str(error)) from None


def _sources(offsets: OffsetReader, source: Input, topic_id: int | None) -> dict[TopicPartition, SourceState]:
    """Return what is committed of each partition of a source topic."""
    committed, ranges = offsets.committed(source.group, source.topic), offsets.ranges(source.topic)
    checkpoints = checkpoints_of(source, committed)
    check_topic_id(source, committed, topic_id)
    check_log_ranges(source, checkpoints, {partition: LogRange(*bounds) for partition, bounds in ranges.items()})
    return {
        TopicPartition(source.topic, partition): (
            SourceState(checkpoints[partition].offset, decode_checkpoint(checkpoints[partition].step_checkpoint))
            if partition in checkpoints
            else SourceState(begin, Checkpoint(start=begin))
        )
        for partition, (begin, _) in ranges.items()
    }


def _commit_first(  # noqa: PLR0913, PLR0917 - of this module alone
    offsets: OffsetReader,
    settings: PipelineSettings,
    aggregator: StageStart,
    inputs: list[Input],
    partials: Input,
    ids: Mapping[str, int],
) -> None:
    """Commit where the pipeline starts, so that neither a crash nor new records move the start."""
    count = settings.topics.aggregator_partitions
    merged = offsets.committed(partials.group, partials.topic)
    missing = range(count) if not merged else ()
    prior = aggregator.prior_output()
    if prior is not None:
        check_first_start(partials, missing, (), prior, begun=False)
        # Kafka deletes the offsets of a topic with the topic.
        counted = [p for p, each in merged.items() if decode_window_checkpoint(each.checkpoint).batch]
        for source in inputs if counted else ():
            check_first_start(source, [0], counted, prior, begun=False)
    schema = partials.state_schema
    first = msgspec.json.encode(WindowCheckpoint()).decode()
    metadata = encode_offset_metadata(first, schema, ids.get(partials.topic))
    by_group = {
        partials.group: {TopicPartition(partials.topic, partition): (0, metadata) for partition in missing},
        inputs[0].group: {
            TopicPartition(source.topic, partition): (
                offset,
                encode_offset_metadata(encode_checkpoint(Checkpoint(start=offset)), schema, ids.get(source.topic)),
            )
            for source in inputs
            for partition, offset in offsets.at_start(source.topic, settings.aggregated.start).items()
        },
    }
    for group, committed in by_group.items():
        if committed and not offsets.commit_first(group, committed):
            raise FencedError(f"group {group} has members: stages of pipeline {settings.name} run, stop them first")


def committed_sources(
    sources: Mapping[TopicPartition, SourceState], schema: StateSchema, ids: Mapping[str, int]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets to commit, with their metadata."""
    return {
        source: CommittedOffset(
            state.offset, encode_offset_metadata(encode_checkpoint(state.checkpoint), schema, ids.get(source.topic))
        )
        for source, state in sources.items()
    }
