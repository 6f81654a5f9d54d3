"""Start checks of a consumer group: its checkpoints belong to these settings, and no record is lost or counted again.

All checks take plain data. `Evidence` reads it from the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from confluent_kafka import TopicPartition

from skewless.errors import BadRecordError, BrokerError, ConfigurationError
from skewless.records import PROGRESS, SCHEMA_HEADER, Headers, watermarks_of
from skewless.shape import Shape, differences, read_saved
from skewless.transport.positions import Positions
from skewless.transport.questions import LogRange

if TYPE_CHECKING:
    from skewless.transport.settings import KafkaSettings

OTHER_NAME = "give the pipeline another name: it then reads the source from its beginning"
NAMED = 5
"""Partitions that a message lists."""


@dataclass(frozen=True)
class Input:
    """The topic that a group reads."""

    group: str
    topic: str
    internal: bool
    """Whether the pipeline itself writes the topic. Then every record from offset 0 on must be read."""
    shape: Shape | None
    """State schema of the checkpoints; None: checkpoints have none."""


class Checkpoint(NamedTuple):
    """Committed offset of a partition, and the step's metadata of it."""

    offset: int
    position: str | None


def checkpoints_of(source: Input, committed: Mapping[int, TopicPartition]) -> dict[int, Checkpoint]:
    """Return the checkpoints of the partitions that have one.

    An offset of 0 without metadata counts as none: `kafka-consumer-groups.sh --reset-offsets` sets it, and a new group
    starts there anyway. Raises BrokerError for another offset without metadata, ConfigurationError for
    a checkpoint of another state schema.
    """
    found = {partition: at for partition, at in committed.items() if at.offset > 0 or (at.offset == 0 and at.metadata)}
    by_hand = {partition: at.offset for partition, at in found.items() if not at.metadata}
    if by_hand:
        raise BrokerError(
            f"group {source.group} has offsets of topic {source.topic} that Skewless did not commit, in "
            f"{_listed(by_hand, 'partition {0} offset {1}')}: were they set by kafka-consumer-groups.sh? They lack the "
            "checkpoint (watermarks, closed windows) that belongs to an offset, so results would be wrong. To count "
            f"from another offset, or again, {OTHER_NAME}"
        )
    _check_shape(source, found)
    return {partition: Checkpoint(at.offset, read_saved(at.metadata).position) for partition, at in found.items()}


def _check_shape(source: Input, found: Mapping[int, TopicPartition]) -> None:
    if source.shape is None:
        return
    for before in {read_saved(at.metadata).shape for at in found.values()} - {source.shape}:
        if before is None:
            raise ConfigurationError(
                f"group {source.group} was last committed by another version of Skewless, whose checkpoints this "
                "version cannot read; run that version, or give the pipeline another name"
            )
        when = f"when group {source.group} last committed; set it back, or give the pipeline another name"
        raise ConfigurationError(*(f"{line} {when}" for line in differences(before, source.shape)))


def check_log_ranges(source: Input, checkpoints: Mapping[int, Checkpoint], ranges: Mapping[int, LogRange]) -> None:
    """Raise BrokerError for records that were deleted before the group read them, and for a topic created again.

    `ranges` has the available offsets of each partition that is assigned. For a group without a checkpoint, the user's
    topic may begin anywhere.
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
            f"{_listed(lost, 'partition {0} (committed offset {1[0]}, log start offset {1[1]})')}: {_cause(source)}. "
            f"Results would lack them without notice. {OTHER_NAME.capitalize()}{_gap(source, lost)}"
        )
    skipped = {
        partition: start for partition, start in log_starts.items() if source.internal and partition not in checkpoints
    }
    if any(skipped.values()):
        trimmed = {partition: start for partition, start in skipped.items() if start}
        raise BrokerError(
            f"records of topic {source.topic} were deleted before group {source.group} first committed, in "
            f"{_listed(trimmed, 'partition {0} (no committed offset, log start offset {1})')}: {_cause(source)}. "
            f"Results would lack them without notice. {OTHER_NAME.capitalize()}; start all of its stages together"
        )


def _gap(source: Input, lost: Mapping[int, tuple[int, int]]) -> str:
    if source.internal:
        return ""
    offsets = ", ".join(f"{partition}: {start}" for partition, (_, start) in islice(sorted(lost.items()), NAMED))
    return f"; or set source.skip_to to {{{offsets}}} to continue without these records"


def _check_log_ends(source: Input, checkpoints: Mapping[int, Checkpoint], ranges: Mapping[int, LogRange]) -> None:
    beyond = {
        partition: (at.offset, ranges[partition].end)
        for partition, at in checkpoints.items()
        if at.offset > ranges[partition].end
    }
    if beyond:
        places = _listed(beyond, "partition {0} (committed offset {1[0]}, log end offset {1[1]})")
        raise BrokerError(
            f"topic {source.topic} ends before the committed offsets of group {source.group}, in {places}: the topic "
            f"was deleted and created again, or its brokers lost records. {OTHER_NAME.capitalize()}"
        )


def _cause(source: Input) -> str:
    if not source.internal:
        return "the topic's retention is shorter than this stage was stopped or behind"
    return (
        "the stage was stopped or behind for longer than topics.internal_retention_s, or the topic has a limit of "
        "bytes (`skewless topics check` names it)"
    )


class Written(Protocol):
    """Traces that a group has left in the topics that it writes. Each returns the trace's name, or None."""

    def of_group(self) -> str | None:
        """Look for results of any input partition."""
        ...

    def of_partition(self, partition: int) -> str | None:
        """Look for results of one input partition."""
        ...


class OffsetsLostError(BrokerError):
    """A group has written results, and its offsets are gone."""


def check_first_start(
    source: Input, missing: Collection[int], restored: Collection[int], written: Written, *, begun: bool
) -> None:
    """Raise OffsetsLostError if the assigned partitions `missing` have no checkpoint although they were processed.

    `restored` has the partitions with state in the changelog. `begun` says whether any partition of the group had a
    checkpoint before the call; after an error the caller must look again, because another member of the group may have
    committed its first transaction meanwhile. Under exactly once, results and checkpoint are in one transaction.
    """
    if not missing:
        return
    if not begun:
        if trace := written.of_group() or ("its changelog" if restored else None):
            raise _lost(f"group {source.group} has no offset in any partition of topic {source.topic}", trace)
        return
    for partition in missing:
        if trace := written.of_partition(partition) or ("its changelog" if partition in restored else None):
            raise _lost(f"group {source.group} has no offset in partition {partition} of topic {source.topic}", trace)


def _lost(what: str, trace: str) -> OffsetsLostError:
    return OffsetsLostError(
        f"{what}, but has written to {trace}: the offsets were deleted, or expired while the group was stopped (the "
        "brokers' offsets.retention.minutes, 7 days by default). To begin again would count everything twice: give "
        "the pipeline another name, or delete its topics"
    )


@dataclass(frozen=True)
class Evidence:
    """Traces of a group in the first topic that its stage writes; no other stage writes to that topic.

    A log start offset above 0 is a trace that retention cannot remove: it says that there were records. Results are the
    other one. They are no trace at least once, where a process that is killed leaves results without offsets.
    """

    kafka: KafkaSettings
    topic: str
    aligned: bool
    """Whether results of an input partition are in the partition of the same number."""
    public: bool
    """Whether every record is a result. Records of internal topics have headers, and may carry watermarks alone."""
    exactly_once: bool

    def of_group(self) -> str | None:
        """Look for results of any input partition."""
        positions = Positions(self.kafka)
        return self._found(positions, positions.begin(self.topic))

    def of_partition(self, partition: int) -> str | None:
        """Look for results of one input partition.

        Where partitions are not aligned, the watermarks name it: a stage sends them to all partitions.
        """
        positions = Positions(self.kafka)
        begin = positions.begin(self.topic)
        if self.aligned:
            return self._found(positions, {partition: begin[partition]})
        if self.exactly_once and positions.holds_more(self.topic, {0: begin[0]}, lambda each: _names(each, partition)):
            return f"topic {self.topic}"
        return None

    def _found(self, positions: Positions, begin: Mapping[int, int]) -> str | None:
        trimmed = any(begin.values())
        if trimmed or (self.exactly_once and positions.holds_more(self.topic, begin, self._is_result)):
            return f"topic {self.topic}"
        return None

    def _is_result(self, headers: Headers) -> bool:
        return self.public or any(name == SCHEMA_HEADER and value != PROGRESS.encode() for name, value in headers)


def _names(headers: Headers, partition: int) -> bool:
    try:
        return partition in watermarks_of(headers)
    except BadRecordError:
        return False


def _listed(found: Mapping[int, object], form: str) -> str:
    lines = [form.format(partition, value) for partition, value in islice(sorted(found.items()), NAMED)]
    more = len(found) - len(lines)
    return ", ".join(lines) + (f" and {more} more" if more else "")
