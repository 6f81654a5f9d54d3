"""The flusher's builder."""

from __future__ import annotations

from skewless.config.stage_start import StageStart
from skewless.stages.built_stage import BuiltStage
from skewless.stages.flusher.step import FlusherRules, FlusherStep
from skewless.stages.table_output import stage_of_table
from skewless.stages.table_settings import added_results

RECORDS_PER_POLL = 8
"""A record of partials has many rows, and a transaction contains whole batches."""


def build(start: StageStart) -> BuiltStage:
    """Build the flusher from its settings. Raises ConfigurationError as `stage_of_table`."""
    pipeline = start.settings
    rules = FlusherRules(
        added_results(pipeline.results),
        pipeline.aggregator.windows,
        pipeline.table_settings.transaction_rows,
        pipeline.splitter.key.parts,
    )
    step = FlusherStep(rules, worker_partitions=pipeline.worker_input.partitions)
    return stage_of_table(start, pipeline.sink_table(), step, max_poll_records=RECORDS_PER_POLL)
