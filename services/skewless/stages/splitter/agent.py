"""The splitter's builder."""

from __future__ import annotations

from dataclasses import asdict

from skewless.parsing.settings import open_format
from skewless.stages.context import BuiltStage, PipelineContext
from skewless.stages.splitter.settings import SplitterSettings
from skewless.stages.splitter.step import SplitterRules, SplitterStep


def build(settings: SplitterSettings, pipeline: PipelineContext) -> BuiltStage:
    """Build the splitter from its settings."""
    rules = SplitterRules(
        **asdict(pipeline.event_time),
        idle_timeout_ms=pipeline.idle_timeout_ms,
        drain=pipeline.drain,
        kafka_time=settings.time.field is None,
    )
    step = SplitterStep(open_format(settings), pipeline.values, rules, pipeline.topic("source"))
    return BuiltStage(step, end_of_partition=True)
