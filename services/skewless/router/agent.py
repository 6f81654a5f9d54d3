"""The router's Faust agent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from faust import StreamT

from skewless.algorithms import grouping
from skewless.router.spread import by_worker
from skewless.router.step import RouterStep
from skewless.settings import PipelineSettings
from skewless.transport.app import App
from skewless.transport.batch import MessageBatch
from skewless.transport.reader import read_latest
from skewless.transport.session import State


def step(settings: PipelineSettings) -> RouterStep:
    """Build the step."""
    return RouterStep(
        grouping.create(settings.router.grouping, settings.router.workers, settings.router),
        max_workers=settings.worker_input.max_workers,
        encoding=settings.worker_input.encoding,
        topic=settings.topic("tuples"),
        snapshot_ms=settings.router.snapshot_ms,
    )


def warm_up(settings: PipelineSettings) -> None:
    """Load the machine code of routing: once partitions are taken over, they stand still meanwhile."""
    keys = pa.array(["any"]).dictionary_encode()
    zero = np.zeros(1, dtype=np.int64)
    chooser = grouping.create(settings.router.grouping, settings.router.workers, settings.router)
    workers = chooser.assign(grouping.KeyBatch(["any"], keys.indices.to_numpy(), zero), now=0)
    list(by_worker(workers, keys, zero, zero))


def restore(settings: PipelineSettings, router: RouterStep, taken: Mapping[int, str | None]) -> dict[int, State]:
    """Read the loads that a router left where its lowest partition is; a router that has loads needs none."""
    if not router.fresh or not taken:
        return {}
    lowest = min(taken)
    return {lowest: read_latest(settings.kafka, settings.topic("control"), lowest, lambda _key: True)}


def declare(app: App) -> None:
    """Declare the agent."""

    @app.agent(app.input_topic(), name="router")
    async def route(batches: StreamT[MessageBatch]) -> None:
        async for batch in batches:
            await app.session.process(batch)
