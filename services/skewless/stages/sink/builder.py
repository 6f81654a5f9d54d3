"""The sink's builder."""

from __future__ import annotations

from skewless.stages.context import BuiltStage, PipelineContext
from skewless.stages.sink.settings import SinkSettings
from skewless.stages.sink.step import SinkStep
from skewless.stages.table_output import output_of


def build(settings: SinkSettings, pipeline: PipelineContext) -> BuiltStage:
    """Build the sink from its settings. Raises ConfigurationError if the driver is not installed."""
    return BuiltStage(
        SinkStep(transaction_rows=settings.transaction_rows),
        output=output_of(settings, pipeline, stage="sink", topic="aggregates"),
        transport={"commit_interval_s": settings.transaction_s, "max_poll_records": settings.transaction_rows},
    )
