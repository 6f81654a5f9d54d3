"""Derives the state schema from the settings of a pipeline."""

from __future__ import annotations

from skewless.aggregate_registry import find_aggregates
from skewless.algorithms.aggregates import BinaryColumn, PartialColumn, wire_columns_of
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.wire.offset_metadata import SCHEMA_CHARACTERS, encode_offset_metadata
from skewless.wire.state_schema import StateSchema


def state_schema_of(settings: PipelineSettings) -> StateSchema:
    """Return the state schema of a pipeline with these settings.

    Raises ConfigurationError if it is too large, because the aggregates of a package have many columns.
    """
    columns = wire_columns_of(find_aggregates(settings.aggregator.aggregates))
    schema = StateSchema(
        window=settings.aggregator.window_schema,
        tick_ms=settings.observer.tick_ms,
        columns=",".join(sorted(map(_name_and_type, columns))),
        decimals=settings.splitter.value.decimals,
        max_workers=settings.worker_input.max_workers,
        aggregator_partitions=settings.topics.aggregator_partitions,
        emit=settings.aggregator.emit,
        lateness_ms=settings.event_time.lateness_ms,
    )
    size = len(encode_offset_metadata("", schema))
    if size > SCHEMA_CHARACTERS:
        raise ConfigurationError(
            f"aggregator.aggregates: with the partial columns {schema.columns} the state schema has {size} characters, "
            f"more than fit into the metadata of an offset ({SCHEMA_CHARACTERS}): use fewer aggregates or shorter names"
        )
    return schema


def _name_and_type(column: PartialColumn) -> str:
    return f"{column.name}:{column.type}" if isinstance(column, BinaryColumn) else column.name
