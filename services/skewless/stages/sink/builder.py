"""The sink's builder."""

from __future__ import annotations

from skewless.config.result_codec import result_reader
from skewless.config.stage_start import StageStart
from skewless.sql.table import ResultTable
from skewless.stages.built_stage import BuiltStage
from skewless.stages.sink.step import Rank, Result, SinkStep
from skewless.stages.table_output import stage_of_table
from skewless.wire.aggregates import ToJson, unchanged


def build(start: StageStart) -> BuiltStage:
    """Build the sink from its settings. Raises ConfigurationError as `stage_of_table`."""
    pipeline = start.settings
    return _built(start, pipeline.sink_table(), Result, result_reader(pipeline))


def build_ranks(start: StageStart) -> BuiltStage:
    """Build the sink of the ranks."""
    (table,) = start.settings.rank_tables()
    return _built(start, table, Rank, unchanged)


def _built(start: StageStart, table: ResultTable, record_type: type[Result | Rank], to_json: ToJson) -> BuiltStage:
    rows = start.settings.table_settings.transaction_rows
    step = SinkStep(record_type, transaction_rows=rows, to_json=to_json)
    return stage_of_table(start, table, step, max_poll_records=rows)
