"""Determines the scope of an audit: the offsets to read and the windows whose results must be equal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from skewless import topology
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CheckFailedError
from skewless.kafka.consumer.offsets import OffsetRanges, OffsetReader
from skewless.kafka.consumer.topic_reader import has_records_after
from skewless.operations.closed_windows import closed_windows
from skewless.operations.offset_range import committed_by_splitter, has_lag, holds_tuples, pipeline_starts
from skewless.stages.splitter.checkpoint import decode_checkpoint as decode_source_checkpoint
from skewless.wire.changelog import decode_checkpoint
from skewless.wire.offset_metadata import engine_of

_AFTER_SPLITTER = topology.upstream(topology.RESULTS_STAGE) - {topology.SOURCE_STAGE} | {topology.RESULTS_STAGE}
STAGES_AFTER_SPLITTER = tuple(row.name for row in topology.STAGES if row.name in _AFTER_SPLITTER)
"""Stages that process a tuple after the splitter, until its result is written. In the order of data: what one of them
has passed on is found at the next one."""
COMPLETE_S, LOOK_S = 20.0, 0.5
"""Time to wait until a micro-batch of `skewless stream` is complete, and between two looks."""


class TruncatedPartition(NamedTuple):
    """A partition whose first records are deleted, by retention or by DeleteRecords."""

    kind: str
    """Name of the topic in the topology."""
    topic: str
    """Full name of the topic."""
    partition: int
    first: int
    """First offset."""


@dataclass(frozen=True, slots=True)
class AuditScope:
    """Offsets to read and windows to compare."""

    source_ranges: dict[str, OffsetRanges]
    """By source topic."""
    offset_ranges: dict[str, OffsetRanges]
    """By topic of the topology that the pipeline writes."""
    closed_until: dict[int, int]
    """By partition of `aggregates`: windows that end at or before this time are complete (MAX_WATERMARK: all)."""
    settled: bool
    """Whether all source records that were read are processed, and the splitter read no more during the check."""
    truncated: list[TruncatedPartition]
    closed_windows: dict[int, int]
    """As `closed_until`, but by the watermarks alone, whether the pipeline is settled or not."""
    splitter_offsets: dict[str, dict[int, int]]
    """Committed offsets of the splitter by topic and partition."""
    ranks_closed_until: dict[int, int]
    """As `closed_until`, of topic `top`."""


def find(offset_reader: OffsetReader, settings: PipelineSettings) -> AuditScope:
    """Return the scope of an audit of a pipeline, which may be running.

    Raises CheckFailedError if a micro-batch of `skewless stream` is not complete.
    """
    ranked = topology.stage(topology.RANKING_STAGE).is_needed(settings)
    micro_batches: set[str] | None = None
    while micro_batches is None or _micro_batches(offset_reader, settings) != micro_batches:
        micro_batches = _complete_micro_batch(offset_reader, settings)
        # The order of the queries makes the answer valid for a running pipeline. The closed windows are read before the
        # splitter's offsets, so these offsets cover all records of the closed windows.
        stages = [topology.RESULTS_STAGE, *([topology.RANKING_STAGE] if ranked else [])]
        without_end, with_end = (
            {stage: closed_windows(offset_reader, settings, stage, end=end) for stage in stages}
            for end in (None, MAX_WATERMARK)
        )
        splitter_offsets = committed_by_splitter(offset_reader, settings)
    # All records that were read are processed if the splitter holds no tuples, no later stage has lag, and the splitter
    # has not moved meanwhile.
    settled = not holds_tuples(offset_reader, settings) and not any(
        has_lag(offset_reader, settings, stage, settings.topic(topology.stage(stage).input))
        for stage in (*STAGES_AFTER_SPLITTER, *([topology.RANKING_STAGE] if ranked else []))
    )
    topics = ("aggregates", "dead-letters", *(["top"] if ranked else []))
    written = {topic: offset_reader.ranges(settings.topic(topic)) for topic in topics}
    settled = settled and committed_by_splitter(offset_reader, settings) == splitter_offsets
    settled = settled and _micro_batches(offset_reader, settings) == micro_batches
    closed = with_end if settled else without_end
    closed_until = by_watermark = closed[topology.RESULTS_STAGE]
    ranks_closed_until = closed.get(topology.RANKING_STAGE, {})
    # The last updates of open windows may wait for their interval.
    if settled and settings.aggregator.emit == "updates" and not settings.aggregator.emit_interval_s:
        closed_until = dict.fromkeys(written["aggregates"], MAX_WATERMARK)
        ranks_closed_until = dict.fromkeys(written.get("top", ()), MAX_WATERMARK)
    truncated = [
        TruncatedPartition(name, settings.topic(name), partition, first)
        for name, ranges in written.items()
        for partition, (first, _) in ranges.items()
        if first
    ]
    source_ranges: dict[str, OffsetRanges] = {}
    for topic, offsets in splitter_offsets.items():
        begin, starts = offset_reader.begin(topic), pipeline_starts(offset_reader, settings, topic)
        ranges = source_ranges[topic] = {}
        for partition, first_available in begin.items():
            first = max(first_available, starts.get(partition, 0))
            ranges[partition] = (first, max(first, offsets.get(partition, first)))
            if first_available > starts.get(partition, first_available):
                truncated.append(TruncatedPartition("source", topic, partition, first_available))
    return AuditScope(
        source_ranges, written, closed_until, settled, truncated, by_watermark, splitter_offsets, ranks_closed_until
    )


def _complete_micro_batch(offset_reader: OffsetReader, settings: PipelineSettings) -> set[str]:
    """Wait until source and results have the same micro-batch. Returns its name, or nothing if stages run."""
    deadline = time.monotonic() + COMPLETE_S
    # The partitions of results are committed one by one, and the offsets of the source last.
    while len(found := _micro_batches(offset_reader, settings)) > 1:
        if time.monotonic() > deadline:
            raise CheckFailedError(
                f"of micro-batches {', '.join(sorted(found))}, the last one is not complete, so results and source do "
                "not fit together: repeat the command if the query runs, or start `skewless stream` to complete it"
            )
        time.sleep(LOOK_S)
    return found


def _micro_batches(offset_reader: OffsetReader, settings: PipelineSettings) -> set[str]:
    """Return the micro-batches that a query has committed last, of each partition of source and results."""
    source, results = settings.group(topology.SOURCE_STAGE), settings.group(topology.RESULTS_STAGE)
    committed = [
        (decode_source_checkpoint(each.checkpoint).batch, each.metadata)
        for topic in topic_plan.source_topics(settings)
        for each in offset_reader.committed(source, topic).values()
    ]
    committed += [
        (decode_checkpoint(each.checkpoint).batch or None, each.metadata)
        for each in offset_reader.committed(results, settings.topic("partials")).values()
    ]
    return {batch or "none" for batch, metadata in committed if engine_of(metadata) == "spark"}


def complete_in_table(
    offset_reader: OffsetReader,
    settings: PipelineSettings,
    scope: AuditScope,
    stored: Mapping[int, int],
    watermarks: Mapping[int, int],
) -> dict[int, int]:
    """Return up to which time the windows of a table of `mode: merge` are complete, by partition of the keys.

    `stored` and `watermarks` are the offsets and watermarks of topic `partials` at which the table was read. That was
    after `find`.
    """
    topic = settings.topic("partials")
    partitions = range(settings.topics.aggregator_partitions)
    if (
        scope.settled
        and not has_records_after(offset_reader, topic, {**offset_reader.begin(topic), **stored})
        and committed_by_splitter(offset_reader, settings) == scope.splitter_offsets
    ):
        return dict.fromkeys(partitions, MAX_WATERMARK)
    # All records of closed windows are in the scope, and the flusher has added all that its watermark has passed.
    return {
        partition: min(scope.closed_windows[partition], watermarks[partition])
        for partition in partitions
        if partition in scope.closed_windows and partition in watermarks
    }
