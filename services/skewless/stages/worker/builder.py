"""The worker's builder."""

from __future__ import annotations

from functools import partial

from skewless.config.stage_start import StageStart
from skewless.engine.executor import StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.stages.built_stage import BuiltStage, Process
from skewless.stages.worker.settings import CostSettings
from skewless.stages.worker.simulated_cost import SimulatedCost
from skewless.stages.worker.step import WorkerStep


def build(start: StageStart) -> BuiltStage:
    """Build the worker from its settings."""
    pipeline = start.settings
    settings = pipeline.worker
    step = WorkerStep(
        pipeline.wire_columns,
        pipeline.tuple_format,
        pipeline.row_format(),
        pane_ms=pipeline.pane_ms,
        source_partitions=start.count_partitions("tuples"),
        aggregator_partitions=pipeline.topics.aggregator_partitions,
        topic=pipeline.topic("worker-input"),
        write=pipeline.write_columns,
    )
    # A worker with a simulated cost is slow on purpose, so its full partitions are paused at once.
    pause_after_s = 1.0 if settings.cost.is_free else 0.0
    return BuiltStage(step, processor=partial(with_cost, settings.cost), pause_after_s=pause_after_s)


def with_cost(settings: CostSettings, executor: StepExecutor) -> Process:
    """Return a function that processes batches. With a simulated cost, partitions are processed concurrently."""
    cost = SimulatedCost(
        settings, executor.process, executor.is_current, executor.fail, executor.statistics.add_busy_time
    )

    async def submit(batch: MessageBatch) -> None:
        cost.submit(batch)

    return executor.process if settings.is_free else submit
