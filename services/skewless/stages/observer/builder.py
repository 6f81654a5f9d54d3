"""The observer's builder."""

from __future__ import annotations

from functools import partial

from skewless.engine.executor import State
from skewless.kafka.consumer.topic_reader import ReadProgress, read_compacted
from skewless.stages.context import BuiltStage, PipelineContext, restore_each
from skewless.stages.observer.settings import ObserverSettings
from skewless.stages.observer.step import ObserverRules, ObserverStep
from skewless.stages.windowed_step import StateLimit


def build(settings: ObserverSettings, pipeline: PipelineContext) -> BuiltStage:
    """Build the observer from its settings."""
    rules = ObserverRules(
        tick_ms=settings.tick_ms,
        workers=pipeline.workers,
        top_keys=settings.top_keys,
        grouping=pipeline.grouping,
        limit=StateLimit(
            settings.max_state_bytes,
            "observer.max_state_bytes",
            "raise the limit and the memory of the process, or use shorter ticks (observer.tick_s) in a new pipeline",
        ),
    )
    step = ObserverStep(
        rules,
        worker_partitions=pipeline.max_workers,
        aggregator_partitions=pipeline.aggregator_partitions,
        topic=pipeline.topic("partials"),
    )
    progress = ReadProgress()
    return BuiltStage(step, restore=restore_each(partial(restore, pipeline, progress)), restore_progress=progress)


def restore(pipeline: PipelineContext, progress: ReadProgress, partition: int, _checkpoint: str | None) -> State:
    """Return the changelog records of a partition: its open ticks, because emitted ticks are deleted."""
    return read_compacted(pipeline.kafka, pipeline.topic("observer-changelog"), partition, lambda _key: True, progress)
