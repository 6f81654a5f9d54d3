"""The splitter's builder."""

from __future__ import annotations

from dataclasses import asdict

from skewless.parsing.record_parser import RecordParser
from skewless.stages.context import BuiltStage, PipelineContext
from skewless.stages.splitter.settings import SplitterSettings
from skewless.stages.splitter.step import SplitterRules, SplitterStep, first_checkpoint


def build(settings: SplitterSettings, pipeline: PipelineContext) -> BuiltStage:
    """Build the splitter from its settings."""
    rules = SplitterRules(
        **asdict(pipeline.event_time),
        idle_timeout_ms=pipeline.idle_timeout_ms,
        drain=pipeline.drain,
        key_parts=settings.key.parts,
    )
    step = SplitterStep(RecordParser(settings), pipeline.values, rules, pipeline.topic("source"))
    return BuiltStage(step, first_checkpoint=first_checkpoint, end_of_partition=True)
