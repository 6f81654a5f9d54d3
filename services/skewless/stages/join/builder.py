"""The join's builder."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from skewless.algorithms.join.window_join import Side
from skewless.config.result_codec import pair_writer
from skewless.config.stage_start import StageStart
from skewless.kafka.consumer.topic_reader import ReadProgress
from skewless.parsing.join_records import side_rules
from skewless.parsing.record_parser import RecordParser
from skewless.stages.built_stage import BuiltStage, restore_each
from skewless.stages.join.first_states import LatestStates, first_states
from skewless.stages.join.restore import restore_from
from skewless.stages.join.step import JoinStep, JoinStepRules
from skewless.stages.schema_fetches import with_schemas


def build(start: StageStart) -> BuiltStage:
    """Build the join from its settings."""
    pipeline = start.settings
    settings = pipeline.joined
    sides = {side: side_rules(settings.side(side)) for side in Side}
    parsers: dict[str | None, RecordParser] = {rules.topic: rules.parser for rules in sides.values()}
    merged_partitions, writers = None, None
    if settings.repartition == "always":
        parsers = {}  # the stages left and right parse the records
        merged_partitions = {side: start.count_partitions(side.value) for side in Side}
        sides = {side: replace(sides[side], topic=pipeline.topic(f"{side.value}-records")) for side in Side}
        writers = {side: (pipeline.group(side.value), pipeline.topic(side.value)) for side in Side}
    writer = pair_writer(pipeline, start.report_wait)
    rules = JoinStepRules(
        sides=sides,
        topics={side: settings.side(side).topic for side in Side},
        join=settings.rules(),
        emit_unmatched_left=settings.kind == "left",
        max_drift_ms=round(settings.max_watermark_drift_s * 1000),
        buffer_records=settings.buffer_records,
        buffer_bytes=settings.buffer_bytes,
        idle_timeout_ms=None if settings.idle_timeout_s is None else round(settings.idle_timeout_s * 1000),
        max_ahead_ms=pipeline.event_time_rules().max_ahead_ms,
        drain=start.drain,
        merged_partitions=merged_partitions,
        encode=writer.encode,
        headers=writer.headers,
    )
    progress = ReadProgress()
    restore = restore_from(pipeline.kafka, pipeline.topic("join-changelog"), rules, writers, progress)
    step = JoinStep(rules)
    if writers is not None:
        read = partial(first_states, pipeline.kafka, writers, rules.join)
        step.first_states = LatestStates(read)
    processor, dependency = with_schemas(parsers, step)
    return BuiltStage(
        step,
        processor=processor,
        dependency=dependency,
        restore=restore_each(restore),
        restore_progress=progress,
        end_of_partition=True,
        co_partitioned=True,
    )
