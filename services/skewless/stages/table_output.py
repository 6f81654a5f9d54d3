"""Builds the stages that write to a table, from their steps."""

from __future__ import annotations

import logging

from skewless.config.stage_start import StageStart
from skewless.engine.start_checks import PriorOutput
from skewless.engine.step import Step
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql import schema
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.sql.table import ResultTable
from skewless.stages.built_stage import BuiltStage

log = logging.getLogger(__name__)


def stage_of_table(start: StageStart, table: ResultTable, step: Step, *, max_poll_records: int) -> BuiltStage:
    """Return a stage that writes the outputs of its step to a table. Raises ConfigurationError as `database_of`."""
    settings = start.settings.table_settings
    if warning := settings.login_warning:
        log.warning("%s", warning)
    output = SqlOutput(
        database_of(settings, table),
        pipeline=start.settings.full_name,
        stage=start.stage.name,
        topics=[topic for topic, _ in start.input_topics()],
        create=settings.create,
        progress=GroupProgress(),
    )
    return BuiltStage(
        step,
        output=lambda _member: output,
        # `SqlOutput` itself looks for rows without offsets.
        prior_output=PriorOutput(
            remedy=f"These offsets are in table {schema.OFFSETS} of {settings.address}. `skewless reset --to-start` "
            "deletes them, and the rows, if the file has the section `sink`. A pipeline of another name also needs "
            f"another table in {table.setting}"
        ),
        transport={"commit_interval_s": settings.transaction_s, "max_poll_records": max_poll_records},
    )
