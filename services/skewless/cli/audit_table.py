"""Chooses with what `skewless audit` compares the table of results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession

from skewless.cli.audit_scope import AuditScope, complete_in_table
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.spark import kafka_options, table_audit
from skewless.spark.audit_job import results_as_json
from skewless.spark.batch_pipeline import BatchResult
from skewless.spark.table_audit import TableComparison


@contextlib.contextmanager
def compared(  # noqa: PLR0913 - the parts of an audit, by name
    spark: SparkSession,
    settings: PipelineSettings,
    answer: BatchResult,
    *,
    offset_reader: OffsetReader,
    scope: AuditScope,
    since: int | None,
    first: int,
) -> Iterator[TableComparison]:
    """Compare the table with topic `aggregates` or, with `mode: merge`, with the batch answer."""
    with table_audit.read(spark, settings, since) as table, contextlib.ExitStack() as stack:
        if settings.table_settings.mode == "merge":
            complete = complete_in_table(offset_reader, settings, scope, table.offsets, table.watermarks)
            comparison = table_audit.compared_with_answer(
                table, answer, settings, complete_until=complete, since=since, first=first
            )
        else:
            # After the table, so that the topic has all that the table has.
            name = settings.topic("aggregates")
            topic = kafka_options.read(spark, settings.kafka, {name: offset_reader.ranges(name)}, headers=False)
            results = results_as_json(topic, settings)
            comparison = table_audit.compared_with_topic(table, results, settings, since=since, first=first)
        yield stack.enter_context(comparison)
