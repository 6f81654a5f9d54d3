"""Builds the stages that write to a table, from their steps."""

from __future__ import annotations

from skewless.config.stage_start import StageStart
from skewless.engine.start_checks import PriorOutput
from skewless.engine.step import Step
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql import schema
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.sql.table import ResultTable
from skewless.stages.built_stage import BuiltStage
from skewless.wire.topic_partition import TopicPartition


class _PriorRows(PriorOutput):
    """Names the place of the offsets. `SqlOutput` itself looks for rows without offsets."""

    def __init__(self, start: StageStart, table: ResultTable) -> None:
        self._start = start
        self._table = table

    @property
    def remedy(self) -> str:
        """What the user also has to know and to do if the offsets do not fit the input."""
        return (
            f"These offsets are in table {schema.OFFSETS} of {self._start.settings.table_settings.address}. `skewless "
            "reset --to-start` deletes them, and the rows, if the file has the section `sink`. A pipeline of another "
            f"name also needs another table in {self._table.setting}"
        )

    def of_group(self) -> None:
        """Return None."""

    def of_partition(self, partition: TopicPartition) -> None:
        """Return None."""


def stage_of_table(start: StageStart, table: ResultTable, step: Step, *, max_poll_records: int) -> BuiltStage:
    """Return a stage that writes the outputs of its step to a table. Raises ConfigurationError as `database_of`."""
    settings = start.settings.table_settings
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
        prior_output=_PriorRows(start, table),
        transport={"commit_interval_s": settings.transaction_s, "max_poll_records": max_poll_records},
    )
