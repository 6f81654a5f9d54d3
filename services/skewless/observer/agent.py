"""The observer's Faust agent."""

from __future__ import annotations

from faust import StreamT

from skewless.observer.step import ObserverRules, ObserverStep
from skewless.settings import PipelineSettings
from skewless.transport.app import App
from skewless.transport.batch import MessageBatch
from skewless.transport.reader import read_latest
from skewless.windows_step import StateLimit


def step(settings: PipelineSettings) -> ObserverStep:
    """Build the step."""
    rules = ObserverRules(
        tick_ms=settings.observer.tick_ms,
        workers=settings.router.workers,
        hottest=settings.observer.hottest,
        grouping=settings.router.grouping,
        limit=StateLimit(
            settings.observer.max_state_bytes,
            "observer.max_state_bytes",
            "raise the limit and the memory of the process, or take shorter ticks (observer.tick_s) for a new pipeline",
        ),
    )
    return ObserverStep(
        rules,
        origins=settings.worker_input.max_workers,
        partitions=settings.topics.aggregator_partitions,
        topic=settings.topic("partials"),
    )


def restore(settings: PipelineSettings, partition: int, position: str | None) -> list[tuple[bytes, bytes]]:  # noqa: ARG001
    """Read a partition's ticks; those that were told are deleted, so everything left is wanted."""
    return read_latest(settings.kafka, settings.topic("ticks"), partition, lambda _key: True)


def declare(app: App) -> None:
    """Declare the agent."""

    @app.agent(app.input_topic(), name="observer")
    async def observe(batches: StreamT[MessageBatch]) -> None:
        async for batch in batches:
            await app.session.process(batch)
