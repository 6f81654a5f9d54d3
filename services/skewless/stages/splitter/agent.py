"""The splitter's builder."""

from __future__ import annotations

from dataclasses import asdict

from skewless.algorithms.local_buffer import LocalRules
from skewless.parsing.record_parser import RecordParser
from skewless.stages.context import BuiltStage, PipelineContext
from skewless.stages.splitter.local_rows import LocalRows
from skewless.stages.splitter.settings import LocalSettings, SplitterSettings
from skewless.stages.splitter.step import SplitterRules, SplitterStep, first_checkpoint


def build(settings: SplitterSettings, pipeline: PipelineContext) -> BuiltStage:
    """Build the splitter from its settings."""
    rules = SplitterRules(
        **asdict(pipeline.event_time),
        idle_timeout_ms=pipeline.idle_timeout_ms,
        drain=pipeline.drain,
        max_drift_ms=pipeline.max_drift_ms,
        key_parts=settings.key.parts,
    )
    local = local_rows(settings.local, pipeline)
    step = SplitterStep(RecordParser(settings), pipeline.values, rules, pipeline.topic("source"), local)
    return BuiltStage(step, first_checkpoint=first_checkpoint, end_of_partition=True)


def local_rows(settings: LocalSettings, pipeline: PipelineContext) -> LocalRows | None:
    """Return the local aggregation; None if there is none."""
    if settings.mode == "none":
        return None
    row_format = pipeline.row_format
    rules = LocalRules(
        columns=row_format.columns,
        pane_ms=pipeline.pane_ms,
        max_rows=settings.buffer_rows,
        adaptive=settings.adaptive,
    )
    return LocalRows(rules, row_format)
