"""The splitter's builder."""

from __future__ import annotations

from hashlib import sha256

from skewless.algorithms.local_buffer import LocalRules
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.parsing.record_parser import RecordParser
from skewless.stages.built_stage import BuiltStage, restore_each
from skewless.stages.schema_fetches import with_schemas
from skewless.stages.splitter.checkpoint import first_checkpoint
from skewless.stages.splitter.local_step import STEPS, LocalSplitterRules
from skewless.stages.splitter.reports import SourceReports
from skewless.stages.splitter.restore import restore_from
from skewless.stages.splitter.settings import LocalSettings, SplitterSettings

DIGEST_CHARACTERS = 16


def build(start: StageStart) -> BuiltStage:
    """Build the splitter from its settings."""
    pipeline = start.settings
    settings = pipeline.splitter
    local = local_rules(pipeline)
    rules = LocalSplitterRules(
        event_time=pipeline.event_time_rules(),
        tuple_format=pipeline.tuple_format,
        idle_timeout_ms=pipeline.event_time.idle_timeout_ms,
        drain=start.drain,
        max_drift_ms=pipeline.event_time.max_drift_ms,
        holds=pipeline.transport.guarantee == "exactly_once",
        local=local,
        row_format=pipeline.row_format(local.pane_ms),
        parsing=parsing_digest(settings),
    )
    reports = SourceReports(start.count_partitions("tuples"), pipeline.aggregated.topic)
    parser = RecordParser(settings)
    step = STEPS[settings.local.mode](parser, rules, reports)
    restore = restore_from(
        pipeline.kafka, reports.label_of, pipeline.aggregated.skip_to_of, rules, lambda: RecordParser(settings)
    )
    processor, dependency = with_schemas({None: parser}, step)
    return BuiltStage(
        step,
        processor=processor,
        dependency=dependency,
        restore=restore_each(restore),
        first_checkpoint=first_checkpoint,
        end_of_partition=True,
    )


def without_local_aggregation(pipeline: PipelineSettings) -> PipelineSettings:
    """Return the settings of a pipeline whose splitter sends each tuple."""
    splitter = pipeline.splitter.model_copy(update={"local": LocalSettings()})
    return pipeline.model_copy(update={"splitter": splitter})


def local_rules(pipeline: PipelineSettings) -> LocalRules:
    """Return the rules of local aggregation."""
    settings = pipeline.splitter.local
    return LocalRules(
        columns=pipeline.row_format().columns,
        pane_ms=settings.window_ms or pipeline.pane_ms,
        max_rows=settings.buffer_rows,
        adaptive=settings.adaptive and settings.mode == "buffer",
    )


def parsing_digest(settings: SplitterSettings) -> str:
    """Return the digest of the settings by which records are parsed."""
    described = settings.model_dump_json(exclude={"local"}, exclude_defaults=True)
    return sha256(f"{settings.format.name}{described}".encode()).hexdigest()[:DIGEST_CHARACTERS]
