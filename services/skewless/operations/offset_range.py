"""Resolves `--starting-offsets` and `--ending-offsets` to the offsets of the topics that a Spark job reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from skewless import topology
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, unknown
from skewless.kafka.consumer.offsets import OffsetRanges, OffsetReader
from skewless.kafka.consumer.topic_reader import has_records_after
from skewless.stages.splitter.checkpoint import decode_checkpoint, start_of
from skewless.times import parse_instant

START = "source.start"
"""Where the pipeline started, or would start."""
WORDS = (START, "earliest", "latest", "committed")
WHERE = "source.start, earliest, latest, committed, a time in ISO 8601, or offsets by partition"


def check(option: str, where: str) -> None:
    """Raise ConfigurationError if `where` is not a word, offsets or a time. Does not connect to a broker."""
    if where not in WORDS and not where.lstrip().startswith("{"):
        parse_instant(option, where, WHERE)


def source_ranges(
    offset_reader: OffsetReader, settings: PipelineSettings, start: str, end: str
) -> dict[str, OffsetRanges]:
    """Return the offsets of each partition of the source topics.

    Raises ConfigurationError if a topic does not have a requested partition or offset.
    """
    return {
        topic: offset_ranges(offset_reader, settings, start, end, topic=topic)
        for topic in topic_plan.source_topics(settings)
    }


def by_partition(settings: PipelineSettings, ranges: Mapping[str, OffsetRanges]) -> dict[str, tuple[int, int]]:
    """Return the offsets of the source topics for a report: by partition, with its topic if there may be several."""
    return {
        f"{settings.aggregated.prefix_of(topic)}{partition}": offset_range
        for topic, partitions in ranges.items()
        for partition, offset_range in partitions.items()
    }


def offset_ranges(  # noqa: PLR0913 - the last two by name
    offset_reader: OffsetReader,
    settings: PipelineSettings,
    start: str,
    end: str,
    *,
    topic: str,
    stage: str = topology.SOURCE_STAGE,
) -> OffsetRanges:
    """Return the offsets of each partition of a topic. `stage` is the stage whose committed offsets apply.

    Raises ConfigurationError if the topic does not have a requested partition or offset.
    """
    begin_offsets, end_offsets = offset_reader.begin(topic), offset_reader.end(topic)
    among_several = topic_plan.source_topics(settings) if settings.has_several_sources else ()

    def resolve(option: str, where: str) -> dict[int, int]:
        match where:
            case "source.start":
                return _start(offset_reader, settings, topic, begin_offsets)
            case "earliest":
                return begin_offsets
            case "latest":
                return end_offsets
            case "committed":
                return begin_offsets | committed_by_stage(offset_reader, settings, stage, topic)
        if where.lstrip().startswith("{"):
            return _parse_offsets(option, where, begin_offsets, end_offsets, topic=topic, among_several=among_several)
        return offset_reader.at_time(topic, parse_instant(option, where, WHERE))

    starts, ends = begin_offsets | resolve("--starting-offsets", start), end_offsets | resolve("--ending-offsets", end)
    if not {start, end} & set(WORDS):
        for partition in begin_offsets:
            if starts[partition] > ends[partition]:
                raise ConfigurationError(
                    f"--starting-offsets: {starts[partition]} is after {ends[partition]} of --ending-offsets in "
                    f"partition {partition} of topic {topic}"
                )
    return {partition: (starts[partition], max(starts[partition], ends[partition])) for partition in begin_offsets}


def _start(
    offset_reader: OffsetReader, settings: PipelineSettings, topic: str, begin: Mapping[int, int]
) -> dict[int, int]:
    """Return where the pipeline started; where it would start now, if it has not run yet."""
    group = settings.group(topology.SOURCE_STAGE)
    if not any(offset_reader.committed(group, source) for source in topic_plan.source_topics(settings)):
        return offset_reader.at_start(topic, settings.aggregated.start, settings.aggregated.skip_to_of(topic))
    starts = pipeline_starts(offset_reader, settings, topic)
    return {partition: max(first, starts.get(partition, 0)) for partition, first in begin.items()}


def pipeline_starts(offset_reader: OffsetReader, settings: PipelineSettings, topic: str) -> dict[int, int]:
    """Return the offsets at which the pipeline started, of the partitions of a source topic that it has read."""
    committed_offsets = offset_reader.committed(settings.group(topology.SOURCE_STAGE), topic)
    starts = {partition: start_of(committed.checkpoint) for partition, committed in committed_offsets.items()}
    return {partition: start for partition, start in starts.items() if start is not None}


def holds_tuples(offset_reader: OffsetReader, settings: PipelineSettings) -> bool:
    """Return whether splitters have committed offsets of records whose tuples they still hold in local windows."""
    return any(
        decode_checkpoint(committed.checkpoint).held is not None
        for topic in topic_plan.source_topics(settings)
        for committed in offset_reader.committed(settings.group(topology.SOURCE_STAGE), topic).values()
    )


def committed_by_splitter(offset_reader: OffsetReader, settings: PipelineSettings) -> dict[str, dict[int, int]]:
    """Return the offsets that splitters have committed, by source topic and partition.

    Raises ConfigurationError if the pipeline has never run.
    """
    group, topics = settings.group(topology.SOURCE_STAGE), topic_plan.source_topics(settings)
    offsets = {
        topic: {partition: committed.offset for partition, committed in offset_reader.committed(group, topic).items()}
        for topic in topics
    }
    if not any(offsets.values()):
        names = ", ".join(topics)
        raise ConfigurationError(f"group {group} has no committed offsets of topic {names}: run the pipeline first")
    return offsets


def committed_by_stage(
    offset_reader: OffsetReader, settings: PipelineSettings, stage: str, topic: str
) -> dict[int, int]:
    """Return the committed offsets of a stage in a topic, whose full name is given, by partition.

    Raises ConfigurationError if the pipeline has never run.
    """
    if stage == topology.SOURCE_STAGE:
        return committed_by_splitter(offset_reader, settings)[topic]
    group = settings.group(stage)
    committed_offsets = offset_reader.committed(group, topic)
    if stage == topology.JOIN_STAGE and not committed_offsets:
        raise ConfigurationError(f"group {group} has no committed offsets of topic {topic}: run the pipeline first")
    return {partition: committed.offset for partition, committed in committed_offsets.items()}


def has_lag(offset_reader: OffsetReader, settings: PipelineSettings, stage: str, topic: str) -> bool:
    """Return whether a stage has not processed all records of a topic. Raises the errors of `committed_by_stage`."""
    offsets = offset_reader.begin(topic) | committed_by_stage(offset_reader, settings, stage, topic)
    return has_records_after(offset_reader, topic, offsets)


def _parse_offsets(  # noqa: PLR0913 - the topic of both ranges, and its place in the text
    option: str,
    text: str,
    begin: Mapping[int, int],
    end: Mapping[int, int],
    *,
    topic: str,
    among_several: Collection[str],
) -> dict[int, int]:
    """Return offsets of a topic by partition. The text has offsets by topic if there are several."""
    form = f'{{"{topic}": {{"0": 1000}}}}' if among_several else '{"0": 1000}'
    try:
        if among_several:
            by_topic = msgspec.json.decode(text, type=dict[str, dict[int, int]])
            if others := sorted(by_topic.keys() - among_several):
                raise ConfigurationError(
                    *(f"{option}: {unknown('source topic', name, among_several)}" for name in others)
                )
            offsets = by_topic.get(topic, {})
        else:
            offsets = msgspec.json.decode(text, type=dict[int, int])
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{option}: {text} is not offsets by partition like {form}: {error}") from None
    problems = [
        f"{option}: partition {partition} has no offset {offset}, "
        + (
            f"it has {begin[partition]} to {end[partition]}"
            if partition in begin
            else f"the topic has {len(begin)} partitions"
        )
        for partition, offset in offsets.items()
        if not (partition in begin and begin[partition] <= offset <= end[partition])
    ]
    if problems:
        raise ConfigurationError(*problems)
    return offsets
