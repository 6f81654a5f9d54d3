"""The Faust agent of a stage: every process of every stage runs this one, with the processor of its builder."""

from __future__ import annotations

from collections.abc import Callable

from faust import StreamT

from skewless.engine.app import App
from skewless.engine.executor import StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.stages.built_stage import Process, process_at_once


def declare_agent(app: App, processor: Callable[[StepExecutor], Process] = process_at_once) -> None:
    """Declare the agent of a stage on its app. `processor` makes the function that processes its batches."""
    process = processor(app.executor)

    @app.agent(app.batches, name=app.runtime.group)
    async def process_stream(batches: StreamT[MessageBatch]) -> None:
        async for batch in batches:
            await process(batch)
