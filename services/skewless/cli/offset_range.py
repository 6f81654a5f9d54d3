"""Resolves `--starting-offsets` and `--ending-offsets` to the offsets of the source topic that a Spark job reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.stages.splitter.checkpoint import decode_checkpoint, start_of

START = "source.start"
"""Where the pipeline started, or would start."""
WORDS = (START, "earliest", "latest", "committed")
WHERE = "source.start, earliest, latest, committed, a time in ISO 8601, or offsets by partition"


def check(option: str, where: str) -> None:
    """Raise ConfigurationError if `where` is not a word, offsets or a time. Does not connect to a broker."""
    if where not in WORDS and not where.lstrip().startswith("{"):
        parse_instant(option, where, WHERE)


def offset_ranges(  # noqa: PLR0913 - the last two by name
    offset_reader: OffsetReader,
    settings: PipelineSettings,
    start: str,
    end: str,
    *,
    stage: str = "splitter",
    name: str = "source",
) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end offset (exclusive) of each partition of the source topic.

    For another topic, `name` is its name in the topology, and `stage` the stage whose committed offsets apply. Raises
    ConfigurationError if the topic does not have a requested partition or offset.
    """
    topic = settings.topic(name)
    begin_offsets, end_offsets = offset_reader.begin(topic), offset_reader.end(topic)

    def resolve(option: str, where: str) -> dict[int, int]:
        match where:
            case "source.start":
                return _start(offset_reader, settings, begin_offsets)
            case "earliest":
                return begin_offsets
            case "latest":
                return end_offsets
            case "committed":
                return begin_offsets | committed(offset_reader, settings, stage, name)
        if where.lstrip().startswith("{"):
            return _parse_offsets(option, where, begin_offsets, end_offsets)
        return offset_reader.at_time(topic, parse_instant(option, where, WHERE))

    starts, ends = begin_offsets | resolve("--starting-offsets", start), end_offsets | resolve("--ending-offsets", end)
    return {partition: (starts[partition], max(starts[partition], ends[partition])) for partition in begin_offsets}


def _start(offset_reader: OffsetReader, settings: PipelineSettings, begin: Mapping[int, int]) -> dict[int, int]:
    """Return where the pipeline started; where it would start now, if it has not run yet."""
    topic = settings.topic("source")
    if not offset_reader.has_committed(settings.group("splitter"), topic):
        return offset_reader.at_start(topic, settings.aggregated.start)
    starts = pipeline_starts(offset_reader, settings)
    return {partition: max(first, starts.get(partition, 0)) for partition, first in begin.items()}


def pipeline_starts(offset_reader: OffsetReader, settings: PipelineSettings) -> dict[int, int]:
    """Return the offsets at which the pipeline started, of the partitions that the splitter has committed."""
    committed_offsets = offset_reader.committed(settings.group("splitter"), settings.topic("source"))
    return {partition: start_of(checkpoint.metadata) for partition, checkpoint in committed_offsets.items()}


def holds_tuples(offset_reader: OffsetReader, settings: PipelineSettings) -> bool:
    """Return whether splitters have committed offsets of records whose tuples they still hold in local windows."""
    committed_offsets = offset_reader.committed(settings.group("splitter"), settings.topic("source"))
    return any(decode_checkpoint(checkpoint.metadata).held is not None for checkpoint in committed_offsets.values())


def committed(
    offset_reader: OffsetReader, settings: PipelineSettings, stage: str, name: str | None = None
) -> dict[int, int]:
    """Return the committed offsets of a stage by partition. `name` names the input of a stage that has several.

    Raises ConfigurationError if the pipeline has never run.
    """
    group, topic = settings.group(stage), settings.topic(name or topology.stage(stage).input)
    committed_offsets = offset_reader.committed(group, topic)
    if stage in {"splitter", "join"} and not committed_offsets:
        raise ConfigurationError(f"group {group} has no committed offsets of topic {topic}: run the pipeline first")
    return {partition: checkpoint.offset for partition, checkpoint in committed_offsets.items()}


def parse_instant(option: str, text: str, accepted: str = "a time in ISO 8601") -> int:
    """Parse a time, in UTC unless it names a zone, to ms since the epoch; ConfigurationError names `accepted`."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{option}: {text!r} must be {accepted}") from None
    return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)


def _parse_offsets(option: str, text: str, begin: Mapping[int, int], end: Mapping[int, int]) -> dict[int, int]:
    try:
        offsets = msgspec.json.decode(text, type=dict[int, int])
    except msgspec.DecodeError as error:
        raise ConfigurationError(f'{option}: {text} is not offsets by partition like {{"0": 1000}}: {error}') from None
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
