"""The sink's builder."""

from __future__ import annotations

from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.stages.context import BuiltStage, PipelineContext
from skewless.stages.sink.settings import SinkSettings
from skewless.stages.sink.step import SinkStep


def build(settings: SinkSettings, pipeline: PipelineContext) -> BuiltStage:
    """Build the sink from its settings. Raises ConfigurationError if the driver is not installed."""
    table = settings.result_table(pipeline.name, pipeline.results)
    database = database_of(settings, table)
    output = SqlOutput(
        database,
        pipeline=pipeline.name,
        stage="sink",
        topics=[pipeline.topic("aggregates")],
        create=settings.create,
        progress=GroupProgress(),
    )
    return BuiltStage(
        SinkStep(transaction_rows=settings.transaction_rows),
        output=lambda _member: output,
        transport={"commit_interval_s": settings.transaction_s, "max_poll_records": settings.transaction_rows},
    )
