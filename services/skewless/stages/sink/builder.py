"""The sink's builder."""

from __future__ import annotations

from skewless.config.result_codec import result_reader
from skewless.config.stage_start import StageStart
from skewless.stages.built_stage import BuiltStage
from skewless.stages.sink.step import SinkStep
from skewless.stages.table_output import output_of


def build(start: StageStart) -> BuiltStage:
    """Build the sink from its settings. Raises ConfigurationError if the driver is not installed."""
    pipeline = start.settings
    settings = pipeline.table_settings
    return BuiltStage(
        SinkStep(transaction_rows=settings.transaction_rows, to_json=result_reader(pipeline)),
        output=output_of(start),
        transport={"commit_interval_s": settings.transaction_s, "max_poll_records": settings.transaction_rows},
    )
