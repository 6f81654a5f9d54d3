"""The flusher's builder."""

from __future__ import annotations

from skewless.algorithms.aggregates import columns_of
from skewless.config.stage_start import StageStart
from skewless.stages.built_stage import BuiltStage
from skewless.stages.flusher.step import FlusherRules, FlusherStep
from skewless.stages.table_output import PriorRows, output_of
from skewless.stages.table_settings import added_results

RECORDS_PER_POLL = 8
"""A record of partials has many rows, and a transaction contains whole batches."""


def build(start: StageStart) -> BuiltStage:
    """Build the flusher from its settings. Raises ConfigurationError if the driver is not installed."""
    pipeline = start.settings
    settings = pipeline.table_settings
    results, table = added_results(pipeline.results), pipeline.sink_table()
    rules = FlusherRules(
        results,
        columns_of(results),
        pipeline.aggregator.windows,
        settings.transaction_rows,
        pipeline.splitter.key.parts,
    )
    return BuiltStage(
        FlusherStep(rules, worker_partitions=pipeline.worker_input.partitions),
        output=output_of(start, table),
        prior_output=PriorRows(start, table),
        transport={"commit_interval_s": settings.transaction_s, "max_poll_records": RECORDS_PER_POLL},
    )
