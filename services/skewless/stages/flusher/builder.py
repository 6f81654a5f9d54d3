"""The flusher's builder."""

from __future__ import annotations

from skewless.algorithms.aggregates import columns_of
from skewless.stages.context import BuiltStage, PipelineContext
from skewless.stages.flusher.settings import SinkSettings
from skewless.stages.flusher.step import FlusherRules, FlusherStep
from skewless.stages.table_output import output_of
from skewless.stages.table_settings import added_results

RECORDS_PER_POLL = 8
"""A record of partials has many rows, and a transaction contains whole batches."""


def build(settings: SinkSettings, pipeline: PipelineContext) -> BuiltStage:
    """Build the flusher from its settings. Raises ConfigurationError if the driver is not installed."""
    results = added_results(pipeline.results)
    rules = FlusherRules(results, columns_of(results), pipeline.windows, settings.transaction_rows, pipeline.key_parts)
    return BuiltStage(
        FlusherStep(rules, worker_partitions=pipeline.max_workers),
        output=output_of(settings, pipeline, stage="flusher", topic="partials"),
        transport={"commit_interval_s": settings.transaction_s, "max_poll_records": RECORDS_PER_POLL},
    )
