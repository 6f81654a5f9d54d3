"""The worker's Faust agent."""

from __future__ import annotations

from faust import StreamT

from skewless.algorithms import aggregates
from skewless.settings import PipelineSettings
from skewless.transport.app import App
from skewless.transport.batch import MessageBatch
from skewless.worker.cost import SimulatedCost
from skewless.worker.step import WorkerStep


def step(settings: PipelineSettings, source_partitions: int) -> WorkerStep:
    """Build the step; the count is always kept, the observer measures load by it."""
    wanted = [aggregates.create(name) for name in dict.fromkeys(("count", *settings.aggregator.aggregates))]
    return WorkerStep(
        aggregates.columns_of(wanted),
        pane_ms=settings.worker.pane_ms,
        origins=source_partitions,
        partitions=settings.topics.aggregator_partitions,
        topic=settings.topic("worker-input"),
    )


def declare(app: App, settings: PipelineSettings) -> None:
    """Declare the agent; with a simulated cost, partitions take their time side by side."""
    cost = SimulatedCost(settings.worker.cost, app.session.process, app.session.fail, app.session.counts.spend)

    @app.agent(app.input_topic(), name="worker")
    async def work(batches: StreamT[MessageBatch]) -> None:
        async for batch in batches:
            if cost.is_free:
                await app.session.process(batch)
            else:
                cost.take_on(batch)
