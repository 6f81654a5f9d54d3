"""Builds the output of the stages that write to a table."""

from __future__ import annotations

from collections.abc import Callable

from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.stages.context import PipelineContext
from skewless.stages.table_settings import SinkSettings


def output_of(
    settings: SinkSettings, pipeline: PipelineContext, *, stage: str, topic: str
) -> Callable[[str], SqlOutput]:
    """Return the function that returns the output of a stage which reads this topic.

    Raises ConfigurationError if the driver is not installed.
    """
    output = SqlOutput(
        database_of(settings, settings.result_table(pipeline.name, pipeline.results, pipeline.key_parts)),
        pipeline=pipeline.full_name,
        stage=stage,
        topics=[pipeline.topic(topic)],
        create=settings.create,
        progress=GroupProgress(),
    )
    return lambda _member: output
