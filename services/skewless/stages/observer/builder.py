"""The observer's builder."""

from __future__ import annotations

from functools import partial

from skewless.config.stage_start import StageStart
from skewless.kafka.consumer.topic_reader import ReadProgress
from skewless.stages.built_stage import BuiltStage, restore_each
from skewless.stages.observer.restore import restore
from skewless.stages.observer.step import ObserverRules, ObserverStep
from skewless.stages.windowed_step import StateLimit


def build(start: StageStart) -> BuiltStage:
    """Build the observer from its settings."""
    pipeline = start.settings
    settings = pipeline.observer
    rules = ObserverRules(
        tick_ms=settings.tick_ms,
        workers=pipeline.router.workers,
        top_keys=settings.top_keys,
        grouping=pipeline.router.grouping,
        write=pipeline.write_columns,
        limit=StateLimit(
            settings.max_state_bytes,
            "observer.max_state_bytes",
            "raise the limit and the memory of the process; a new pipeline may have longer ticks (observer.tick_s), a "
            "smaller event_time.allowed_lateness_s or fewer topics.aggregator_partitions",
        ),
    )
    step = ObserverStep(
        rules,
        worker_partitions=pipeline.worker_input.partitions,
        aggregator_partitions=pipeline.topics.aggregator_partitions,
        topic=pipeline.topic("partials"),
    )
    progress = ReadProgress()
    return BuiltStage(step, restore=restore_each(partial(restore, pipeline, progress)), restore_progress=progress)
