"""The aggregator's Faust agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from faust import StreamT

from skewless.aggregator.step import AggregatorRules, AggregatorStep
from skewless.algorithms import aggregates
from skewless.changelog import read_position, window_of
from skewless.settings import PipelineSettings
from skewless.transport.app import App
from skewless.transport.batch import MessageBatch
from skewless.transport.reader import read_latest

State = list[tuple[bytes, bytes]]


def step(settings: PipelineSettings) -> AggregatorStep:
    """Build the step."""
    wanted = [aggregates.create(name) for name in settings.aggregator.aggregates]
    rules = AggregatorRules(
        aggregates=wanted,
        columns=aggregates.columns_of(wanted),
        window_ms=settings.aggregator.window_ms,
        keep_closed_ms=settings.aggregator.keep_closed_ms,
        updates=settings.aggregator.emit == "updates",
        decimals=settings.splitter.value.decimals,
    )
    return AggregatorStep(rules, origins=settings.worker_input.max_workers, topic=settings.topic("partials"))


def restore(settings: PipelineSettings, partition: int, position: str | None) -> State:
    """Read a partition's windows; of those that are closed only that they exist."""
    closed_to, size = read_position(position).closed_to, settings.aggregator.window_ms

    def is_open(key: bytes) -> bool:
        return closed_to is None or window_of(key) + size > closed_to

    return read_latest(settings.kafka, settings.topic("windows"), partition, is_open)


def declare(app: App, settings: PipelineSettings, merger: AggregatorStep) -> None:
    """Declare the agent."""

    def before(batch: MessageBatch) -> Awaitable[None] | None:
        missing = merger.missing(batch)
        return reopen(batch, missing) if missing else None

    async def reopen(batch: MessageBatch, windows: set[int]) -> None:
        topic = settings.topic("windows")
        state = await asyncio.to_thread(
            read_latest, settings.kafka, topic, batch.partition, lambda key: window_of(key) in windows
        )
        if app.session.current(batch):
            merger.reopen(batch.partition, [(key, value) for key, value in state if value])

    @app.agent(app.input_topic(), name="aggregator")
    async def merge(batches: StreamT[MessageBatch]) -> None:
        async for batch in batches:
            await app.session.process(batch, before)
