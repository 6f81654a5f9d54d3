"""Builds the output of the stages that write to a table."""

from __future__ import annotations

from collections.abc import Callable

from skewless.config.stage_start import StageStart
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.sql.table import ResultTable


def output_of(start: StageStart, table: ResultTable) -> Callable[[str], SqlOutput]:
    """Return the function that returns the output of a stage to a table.

    Raises ConfigurationError if the driver is not installed.
    """
    pipeline = start.settings
    output = SqlOutput(
        database_of(pipeline.table_settings, table),
        pipeline=pipeline.full_name,
        stage=start.stage.name,
        topics=[topic for topic, _ in start.input_topics()],
        create=pipeline.table_settings.create,
        progress=GroupProgress(),
    )
    return lambda _member: output
