"""The splitter's Faust agent."""

from __future__ import annotations

from dataclasses import asdict

from faust import StreamT

from skewless.settings import PipelineSettings
from skewless.splitter.formats import create_format
from skewless.splitter.judgement import TimeRules
from skewless.splitter.step import SplitterRules, SplitterStep
from skewless.transport.app import App
from skewless.transport.batch import MessageBatch


def step(settings: PipelineSettings, *, drain: bool) -> SplitterStep:
    """Build the step."""
    idle_s = settings.event_time.idle_timeout_s
    rules = SplitterRules(
        **asdict(TimeRules.of(settings)),
        idle_timeout_ms=None if idle_s is None else round(idle_s * 1000),
        drain=drain,
        kafka_time=settings.splitter.time.field is None,
        decimals=settings.splitter.value.decimals,
    )
    return SplitterStep(create_format(settings.splitter), rules, settings.source.topic)


def declare(app: App) -> None:
    """Declare the agent."""

    @app.agent(app.input_topic(), name="splitter")
    async def split(batches: StreamT[MessageBatch]) -> None:
        async for batch in batches:
            await app.session.process(batch)
