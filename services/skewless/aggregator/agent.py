"""The aggregator's Faust agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from faust import StreamT

from skewless.aggregator.step import AggregatorRules, AggregatorStep
from skewless.algorithms import aggregates
from skewless.changelog import read_position, window_of
from skewless.settings import PipelineSettings
from skewless.transport.app import App
from skewless.transport.batch import MessageBatch
from skewless.transport.reader import read_latest
from skewless.transport.session import Before, Session
from skewless.windows_step import StateLimit

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
        limit=StateLimit(
            settings.aggregator.max_state_bytes,
            "aggregator.max_state_bytes",
            "start more aggregator processes, up to one per partition, or raise the limit and the memory of the "
            "process; a new pipeline can have shorter windows or more topics.aggregator_partitions",
        ),
    )
    return AggregatorStep(rules, origins=settings.worker_input.max_workers, topic=settings.topic("partials"))


def restore(settings: PipelineSettings, partition: int, position: str | None) -> State:
    """Read a partition's windows; of those that are closed only that they exist."""
    closed_to, size = read_position(position).closed_to, settings.aggregator.window_ms

    def is_open(key: bytes) -> bool:
        return closed_to is None or window_of(key) + size > closed_to

    return read_latest(settings.kafka, settings.topic("windows"), partition, is_open)


Read = Callable[[int, Callable[[bytes], bool]], State]
"""Reads a partition of the changelog; values of keys that are not wanted are empty."""


def reopening(session: Session, merger: AggregatorStep, read: Read) -> Before:
    """Return what comes before a batch: closed windows that it belongs to are fetched from the changelog."""

    def before(batch: MessageBatch) -> Awaitable[None] | None:
        missing = merger.missing(batch)
        return reopen(batch, missing) if missing else None

    async def reopen(batch: MessageBatch, windows: set[int]) -> None:
        state = await asyncio.to_thread(read, batch.partition, lambda key: window_of(key) in windows)
        # The partition may have been lost, and assigned again with other windows, while these were fetched.
        if session.current(batch):
            merger.reopen(batch.partition, [(key, value) for key, value in state if value])

    return before


def declare(app: App, settings: PipelineSettings, merger: AggregatorStep) -> None:
    """Declare the agent."""
    before = reopening(app.session, merger, partial(read_latest, settings.kafka, settings.topic("windows")))

    @app.agent(app.input_topic(), name="aggregator")
    async def merge(batches: StreamT[MessageBatch]) -> None:
        async for batch in batches:
            await app.session.process(batch, before)
