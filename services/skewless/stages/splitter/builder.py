"""The splitter's builder."""

from __future__ import annotations

from hashlib import sha256

from skewless.algorithms.local_buffer import LocalRules
from skewless.parsing.record_parser import RecordParser
from skewless.stages.context import BuiltStage, PipelineContext, restore_each
from skewless.stages.splitter.checkpoint import first_checkpoint
from skewless.stages.splitter.local_rows import BufferedRows, LocalRows, WindowRows
from skewless.stages.splitter.reports import SourceReports
from skewless.stages.splitter.restore import HeldRules, restore_from
from skewless.stages.splitter.settings import LocalSettings, SplitterSettings
from skewless.stages.splitter.step import SplitterRules, SplitterStep
from skewless.wire.tuples import TupleFormat

DIGEST_CHARACTERS = 16


def build(settings: SplitterSettings, pipeline: PipelineContext) -> BuiltStage:
    """Build the splitter from its settings."""
    rules = SplitterRules(
        event_time=pipeline.event_time,
        idle_timeout_ms=pipeline.idle_timeout_ms,
        drain=pipeline.drain,
        max_drift_ms=pipeline.max_drift_ms,
        key_parts=settings.key.parts,
        parsing=parsing_digest(settings),
    )
    held = HeldRules(
        new_parser=lambda: RecordParser(settings),
        tuple_format=TupleFormat(pipeline.values, settings.key.parts),
        event_time=pipeline.event_time,
        local=local_rules(settings.local, pipeline),
        parsing=rules.parsing,
    )
    reports = SourceReports(pipeline.count_partitions("tuples"), pipeline.source_topic)
    step = SplitterStep(RecordParser(settings), pipeline.values, rules, reports, local_rows(settings.local, pipeline))
    return BuiltStage(
        step,
        restore=restore_each(restore_from(pipeline.kafka, reports.label_of, pipeline.skip_to, held)),
        first_checkpoint=first_checkpoint,
        end_of_partition=True,
    )


def local_rules(settings: LocalSettings, pipeline: PipelineContext) -> LocalRules:
    """Return the rules of local aggregation."""
    return LocalRules(
        columns=pipeline.row_format.columns,
        pane_ms=settings.window_ms or pipeline.pane_ms,
        max_rows=settings.buffer_rows,
        adaptive=settings.adaptive and settings.mode == "buffer",
    )


def local_rows(settings: LocalSettings, pipeline: PipelineContext) -> LocalRows:
    """Return the local aggregation of the mode."""
    rules = local_rules(settings, pipeline)
    row_format = pipeline.row_format_of(rules.pane_ms)
    match settings.mode:
        case "none":
            return LocalRows(row_format)
        case "buffer":
            return BufferedRows(rules, row_format)
        case "windows":
            return WindowRows(rules, row_format, pipeline.event_time.lateness_ms)


def parsing_digest(settings: SplitterSettings) -> str:
    """Return the digest of the settings by which records are parsed."""
    described = settings.model_dump_json(exclude={"local"}, exclude_defaults=True)
    return sha256(f"{settings.format.name}{described}".encode()).hexdigest()[:DIGEST_CHARACTERS]
