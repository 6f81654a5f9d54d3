"""Start checks of a consumer group: its checkpoints match the settings, and no record is lost or counted twice.

All checks take plain data. `PriorOutputInTopic` reads it from the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from skewless.algorithms.watermark import NOTHING_REPORTED
from skewless.errors import BadRecordError, BrokerError, ConfigurationError
from skewless.kafka.consumer.broker_queries import LogRange
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import has_records_after
from skewless.wire.headers import SCHEMA_HEADER, WATERMARK, sources_of, watermarks_of
from skewless.wire.offset_metadata import decode_offset_metadata
from skewless.wire.record import Headers
from skewless.wire.state_schema import AnySchema, incompatibilities
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

if TYPE_CHECKING:
    from skewless.kafka.settings import KafkaSettings

TopicKind = Literal["user", "public", "internal"]
RESET = "count everything again with `skewless reset --to-start`"
AGAIN = f"{RESET}, which removes the results, or give the pipeline another name"
AFTER_LOST_OFFSETS = f"Starting from the beginning would count records twice: {AGAIN}"
MAX_LISTED = 5
"""Maximum number of partitions that a message lists."""


@dataclass(frozen=True)
class Input:
    """One input topic of a consumer group."""

    group: str
    topic: str
    kind: TopicKind
    """Who writes the topic: the user, or another stage, to a public or to an internal topic.

    Every record of an internal topic must be read, from offset 0 on. The other topics may begin at any offset when the
    group starts, because users decide how long they keep records."""
    state_schema: AnySchema | None
    """State schema of the checkpoints; None if checkpoints have none."""
    partitions: int | None = None
    """Required number of partitions; None for any number."""
    skip_to: Mapping[int, int] | None = None
    """First offset to read by partition, as configured by the user; None if the topic has no such setting."""
    skip_to_prefix: str = ""
    """What precedes the number of a partition in this setting."""
    bounded: bool = False
    """Whether records that are written after the assignment are not read, because the run would not end with a source
    that gets records all the time."""


class Checkpoint(NamedTuple):
    """Committed offset of a partition, and the step's checkpoint that was committed with it."""

    offset: int
    step_checkpoint: str | None
    """None before the first commit."""


def checkpoints_of(source: Input, committed: Mapping[int, CommittedOffset]) -> dict[int, Checkpoint]:
    """Return the checkpoints of the partitions that have one.

    Raises BrokerError for an offset without metadata, as `kafka-consumer-groups.sh --reset-offsets` sets it, and
    ConfigurationError for a checkpoint of another state schema.
    """
    without_metadata = {
        partition: committed_offset.offset
        for partition, committed_offset in committed.items()
        if not committed_offset.metadata
    }
    if without_metadata:
        raise BrokerError(
            f"group {source.group} has offsets of topic {source.topic} that Skewless did not commit, in "
            f"{_list(without_metadata, 'partition {0} offset {1}')}: were they set by kafka-consumer-groups.sh? They "
            "lack the checkpoint (watermarks, closed windows) that belongs to an offset, so results would be wrong. "
            f"{AGAIN.capitalize()}"
        )
    _check_state_schema(source, committed)
    return {
        partition: Checkpoint(committed_offset.offset, decode_offset_metadata(committed_offset.metadata).checkpoint)
        for partition, committed_offset in committed.items()
    }


def _check_state_schema(source: Input, committed: Mapping[int, CommittedOffset]) -> None:
    if source.state_schema is None:
        return
    found = {decode_offset_metadata(committed_offset.metadata).state_schema for committed_offset in committed.values()}
    for other in found - {source.state_schema}:
        if other is None:
            raise ConfigurationError(
                f"group {source.group} was last committed by another version of Skewless, whose checkpoints this "
                "version cannot read; run that version, or give the pipeline another name (docs/how-to/upgrade.md)"
            )
        when = f"when group {source.group} last committed; set it back, give the pipeline another name, or {RESET}"
        if lines := [f"{line} {when}" for line in incompatibilities(other, source.state_schema)]:
            raise ConfigurationError(*lines)


def check_former_inputs(offset_reader: OffsetReader, former_inputs: Iterable[Input]) -> None:
    """Raise ConfigurationError if the group has a checkpoint of a topic that it reads with other settings only."""
    for source in former_inputs:
        checkpoints_of(source, offset_reader.committed(source.group, source.topic))


def check_topic_id(source: Input, committed: Mapping[int, CommittedOffset], topic_id: int | None) -> None:
    """Raise BrokerError if the topic was created again after the group had committed offsets of it.

    An unknown id is not checked: that of the topic, None, or those of checkpoints of earlier versions. A partition of
    which no record was read continues.
    """
    if topic_id is None:
        return
    stale = {
        partition: committed_offset.offset
        for partition, committed_offset in committed.items()
        if committed_offset.offset > 0
        and decode_offset_metadata(committed_offset.metadata).topic_id not in {None, topic_id}
    }
    if stale:
        raise created_again(
            source.topic, f"after group {source.group} had read {_list(stale, 'partition {0} up to offset {1}')}"
        )


def check_changelog_id(
    source: Input, committed: Mapping[int, CommittedOffset], changelog: str, changelog_id: int | None
) -> None:
    """Raise BrokerError if the changelog was created again after the group had written state. As `check_topic_id`."""
    if changelog_id is None:
        return
    known = {decode_offset_metadata(offset.metadata).changelog_id for offset in committed.values() if offset.offset}
    if known - {None, changelog_id}:
        raise BrokerError(
            f"topic {changelog} was deleted and created again after group {source.group} had written its state to it. "
            f"The next results would lack everything before. {AGAIN.capitalize()}"
        )


def created_again(topic: str, when: str) -> BrokerError:
    """Return the error for a topic that was deleted and created again."""
    return BrokerError(
        f"topic {topic} was deleted and created again {when}. Its records would be missing from the results, or be "
        f"counted in addition to those of the former topic. {AGAIN.capitalize()}"
    )


def check_skip_to(source: Input, skip_to: Mapping[int, int], ends: Mapping[int, int]) -> None:
    """Raise ConfigurationError for offsets after the ends of their partitions."""
    if problems := [
        f"source.skip_to.{source.skip_to_prefix}{partition}: {offset} is after {ends[partition]}, the partition's end"
        for partition, offset in skip_to.items()
        if offset > ends.get(partition, offset)
    ]:
        raise ConfigurationError(*problems)


def check_log_ranges(source: Input, checkpoints: Mapping[int, Checkpoint], ranges: Mapping[int, LogRange]) -> None:
    """Raise BrokerError for records that were deleted before the group read them, and for a topic created again.

    `ranges` has the available offsets of each assigned partition. For a group without a checkpoint, only an internal
    topic must begin at offset 0.
    """
    _check_log_ends(source, checkpoints, ranges)
    log_starts = {partition: log.begin for partition, log in ranges.items()}
    lost = {
        partition: (checkpoints[partition].offset, start)
        for partition, start in log_starts.items()
        if partition in checkpoints and checkpoints[partition].offset < start
    }
    if lost:
        raise BrokerError(
            f"records of topic {source.topic} were deleted before group {source.group} read them, in "
            f"{_list(lost, 'partition {0} (committed offset {1[0]}, log start offset {1[1]})')}: {_cause(source)}. "
            f"Results would lack them without notice. {AGAIN.capitalize()}{_instruction_to_skip(source, lost)}"
        )
    skipped = {
        partition: start
        for partition, start in log_starts.items()
        if source.kind == "internal" and partition not in checkpoints
    }
    if any(skipped.values()):
        trimmed = {partition: start for partition, start in skipped.items() if start}
        raise BrokerError(
            f"records of topic {source.topic} were deleted before group {source.group} first committed, in "
            f"{_list(trimmed, 'partition {0} (no committed offset, log start offset {1})')}: {_cause(source)}. "
            f"Results would lack them without notice. {AGAIN.capitalize()}; start all of its stages together"
        )


def _instruction_to_skip(source: Input, lost: Mapping[int, tuple[int, int]]) -> str:
    if source.kind != "user":
        return ""
    first = islice(sorted(lost.items()), MAX_LISTED)
    offsets = ", ".join(f"{source.skip_to_prefix}{partition}: {start}" for partition, (_, start) in first)
    return f"; or set source.skip_to to {{{offsets}}} to continue without these records"


def _check_log_ends(source: Input, checkpoints: Mapping[int, Checkpoint], ranges: Mapping[int, LogRange]) -> None:
    beyond = {
        partition: (checkpoint.offset, ranges[partition].end)
        for partition, checkpoint in checkpoints.items()
        if checkpoint.offset > ranges[partition].end
    }
    if beyond:
        partitions = _list(beyond, "partition {0} (committed offset {1[0]}, log end offset {1[1]})")
        raise BrokerError(
            f"topic {source.topic} ends before the committed offsets of group {source.group}, in {partitions}: the "
            f"topic was deleted and created again, or its brokers lost records. {AGAIN.capitalize()}"
        )


def _cause(source: Input) -> str:
    if source.kind != "internal":
        return "the topic's retention is shorter than the time for which this stage was stopped or lagging"
    return (
        "the stage was stopped or lagging for longer than topics.internal_retention_s, or the topic has a limit of "
        "bytes (`skewless topics check` names it)"
    )


@dataclass(frozen=True, kw_only=True)
class PriorOutput:
    """Looks for results that a group has written before. Each method returns the name of their location, or None."""

    group: str | None = None
    """The group that has the offsets of these results. None: the consumer group."""
    advice: str = AFTER_LOST_OFFSETS
    """What the user has to know and to do if there are results, and the offsets are gone."""
    remedy: str | None = None
    """What the user also has to know and to do if the offsets do not fit the input. None: nothing."""

    def of_group(self) -> str | None:
        """Look for results of any input partition."""
        return None

    def of_partition(self, partition: TopicPartition) -> str | None:  # noqa: ARG002 - for subclasses
        """Look for results of one input partition."""
        return None


class OffsetsLostError(BrokerError):
    """A group has written results, and its offsets are gone."""


def check_first_start(
    source: Input, missing: Collection[int], restored: Collection[int], prior_output: PriorOutput, *, begun: bool
) -> None:
    """Raise OffsetsLostError if the group has written results of partitions that have no checkpoint.

    `missing` has the assigned partitions without a checkpoint, `restored` the partitions with state in the changelog.
    `begun` is whether any partition of the group had a checkpoint before the call. If it is False, the caller must
    check after an error whether the group has a checkpoint now. Another member may have committed its first transaction
    in the meantime: under exactly once, a transaction contains both results and checkpoint.
    """
    if not missing:
        return
    group = prior_output.group or source.group
    if not begun:
        if location := prior_output.of_group() or ("its changelog" if restored else None):
            problem = f"group {group} has no offset in any partition of topic {source.topic}"
            raise _offsets_lost(problem, location, prior_output.advice)
        return
    for partition in missing:
        if location := prior_output.of_partition(TopicPartition(source.topic, partition)) or (
            "its changelog" if partition in restored else None
        ):
            problem = f"group {group} has no offset in partition {partition} of topic {source.topic}"
            raise _offsets_lost(problem, location, prior_output.advice)


def _offsets_lost(problem: str, location: str, advice: str) -> OffsetsLostError:
    return OffsetsLostError(
        f"{problem}, but has written to {location}: the topic was deleted and created again, which deletes its "
        "offsets, or the offsets were deleted, or expired while the group was stopped (the brokers' "
        f"offsets.retention.minutes, 7 days by default), or the group has read other topics. {advice}"
    )


@dataclass(frozen=True)
class PriorOutputInTopic(PriorOutput):
    """Results that a group has written, in the first topic that its stage writes. No other stage writes to that topic.

    A log start offset above 0 shows that there were records; retention cannot remove this evidence. The other evidence
    are results, but only under exactly once: under at least once, a killed process leaves results without offsets.
    """

    kafka: KafkaSettings
    topic: str
    aligned: bool
    """Whether results of an input partition are in the partition of the same number."""
    public: bool
    """Whether every record is a result. A record of an internal topic may carry only watermarks, in its headers."""
    exactly_once: bool
    merged: bool = False
    """Whether a partition may have records of others than the input partition of its number: of several input topics,
    or reports of a partition that the source does not have yet."""

    def of_group(self) -> str | None:
        """Look for results of any input partition."""
        offset_reader = OffsetReader(self.kafka)
        return self._location(offset_reader, offset_reader.begin(self.topic))

    def of_partition(self, partition: TopicPartition) -> str | None:
        """Look for results of one input partition."""
        if self.merged:
            # Only the whole topic would show it. Offsets that expire do so together, and `of_group` notices that.
            return None
        number = partition.partition
        offset_reader = OffsetReader(self.kafka)
        begin = offset_reader.begin(self.topic)
        if self.aligned:
            # A source partition that is not there was added later. It shares its output partition with another one.
            return self._location(offset_reader, {number: begin[number]}, partition) if number in begin else None
        # Not aligned: any output partition may have the results. The watermarks in the headers name the input
        # partition, and a stage sends them to all output partitions, so reading one of them suffices.
        if self.exactly_once and has_records_after(
            offset_reader, self.topic, {0: begin[0]}, lambda headers: _has_watermark_of(headers, partition)
        ):
            return f"topic {self.topic}"
        return None

    def _location(
        self, offset_reader: OffsetReader, begin: Mapping[int, int], partition: TopicPartition | None = None
    ) -> str | None:
        """Look for results from these offsets on, if given only for those of an input partition."""

        def is_result(headers: Headers) -> bool:
            if self.public:
                return True
            return has_rows(headers) and (partition is None or _has_watermark_of(headers, partition))

        trimmed = any(begin.values())
        if trimmed or (self.exactly_once and has_records_after(offset_reader, self.topic, begin, is_result)):
            return f"topic {self.topic}"
        return None


def has_rows(headers: Headers) -> bool:
    """Return whether a record of an internal topic has rows, and not only watermarks."""
    return any(name == SCHEMA_HEADER and value != WATERMARK.encode() for name, value in headers)


def _has_watermark_of(headers: Headers, partition: TopicPartition) -> bool:
    try:
        state = sources_of(headers).get(partition, NOTHING_REPORTED)
        return state.watermark is not None or partition.partition in watermarks_of(headers)
    except BadRecordError:
        return False


def _list(values: Mapping[int, object], template: str) -> str:
    lines = [template.format(partition, value) for partition, value in islice(sorted(values.items()), MAX_LISTED)]
    more = len(values) - len(lines)
    return ", ".join(lines) + (f" and {more} more" if more else "")
