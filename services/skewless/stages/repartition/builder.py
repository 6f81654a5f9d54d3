"""The builder of the stages left and right."""

from __future__ import annotations

from dataclasses import replace

from skewless.algorithms.join.window_join import Side
from skewless.config.stage_start import StageStart
from skewless.parsing.join_records import side_rules
from skewless.stages.built_stage import BuiltStage
from skewless.stages.repartition.step import RECORD_TOPICS, RepartitionRules, RepartitionStep
from skewless.stages.schema_fetches import with_schemas


def build(start: StageStart) -> BuiltStage:
    """Build the stage left or right from the settings of the join."""
    side, pipeline = Side(start.stage.input), start.settings
    settings = pipeline.joined
    rules = RepartitionRules(
        side=side,
        records=replace(side_rules(settings.side(side)), keyed=False),
        disorder_ms=settings.rules().disorder_ms(side),
        partitions=start.count_partitions(RECORD_TOPICS[side]),
        max_drift_ms=round(settings.max_watermark_drift_s * 1000),
        idle_timeout_ms=None if settings.idle_timeout_s is None else round(settings.idle_timeout_s * 1000),
        max_ahead_ms=pipeline.event_time_rules().max_ahead_ms,
        drain=start.drain,
    )
    step = RepartitionStep(rules)
    processor, dependency = with_schemas({None: rules.records.parser}, step)
    return BuiltStage(step, processor=processor, dependency=dependency, end_of_partition=True)
