"""Builds the output of the stages that write to a table."""

from __future__ import annotations

from collections.abc import Callable

from skewless.config.stage_start import StageStart
from skewless.engine.start_checks import PriorOutput
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql import schema
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.sql.table import ResultTable
from skewless.wire.topic_partition import TopicPartition


class PriorRows(PriorOutput):
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
