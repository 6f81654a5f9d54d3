"""The router's Faust agent."""

from __future__ import annotations

from faust import StreamT

from skewless.algorithms import grouping
from skewless.router.step import RouterStep
from skewless.settings import PipelineSettings
from skewless.transport.app import App
from skewless.transport.batch import MessageBatch


def step(settings: PipelineSettings) -> RouterStep:
    """Build the step."""
    return RouterStep(
        grouping.create(settings.router.grouping, settings.router.workers, settings.router),
        max_workers=settings.worker_input.max_workers,
        encoding=settings.worker_input.encoding,
        topic=settings.topic("tuples"),
    )


def declare(app: App) -> None:
    """Declare the agent."""

    @app.agent(app.topic(app.wiring.topic, value_serializer="raw"), name="router")
    async def route(batches: StreamT[MessageBatch]) -> None:
        async for batch in batches:
            await app.session.process(batch)
