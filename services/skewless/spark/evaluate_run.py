"""Evaluates pipelines: runs the Spark job over their topics, and writes the results into a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.spark.job_runner import spark_running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skewless.spark.kafka_options import TopicRanges
    from skewless.spark.pipeline_run import PipelineRun

EVALUATION_FILE = "evaluation.json"
TABLES = ("cells", "keys")
TOPICS = ("worker-input", "tuples", "partials", "aggregator-changelog", "router-state", "distribution")


def evaluated(
    runs: Sequence[tuple[PipelineSettings, ReadRange]], spark: dict[str, Any], tables: Path | None = None
) -> dict[str, Any]:
    """Evaluate pipelines, and return the evaluation as a JSON object.

    `runs`: settings of pipelines, and what to read of each. `spark`: the options of `spark_running`. `tables`: the
    folder for the Parquet files; None: they are not written.
    """
    with spark_running("evaluate", spark) as session:
        from skewless.spark.evaluate_job import evaluate

        return evaluate(session, [recorded(session, *run) for run in runs], tables)


def write_results(evaluation: dict[str, Any], out: Path) -> Path:
    """Write the evaluation as JSON and as a report into the folder. Returns the file of the report."""
    (out / EVALUATION_FILE).write_text(json.dumps(evaluation), encoding="utf-8")
    file = out / "report.html"
    write_report(evaluation, file)
    return file


def write_report(evaluation: dict[str, Any], file: Path) -> None:
    """Write the report of an evaluation."""
    from skewless.spark.report.evaluation_report import report

    file.write_text(report(evaluation), encoding="utf-8")


class ReadRange(NamedTuple):
    """What to read of the topics of a pipeline."""

    offsets: TopicRanges
    is_whole: bool
    """False if retention has deleted the first part of the run."""


def end_offsets(settings: PipelineSettings) -> dict[str, dict[int, int]]:
    """Return the end offsets of the topics of an evaluation."""
    offset_reader = OffsetReader(settings.kafka)
    return {topic: offset_reader.end(settings.topic(topic)) for topic in TOPICS}


def read_range(settings: PipelineSettings, starts: Mapping[str, Mapping[int, int]] | None = None) -> ReadRange:
    """Return what to read: each topic from `starts`, or from its beginning, to its end.

    Raises CheckFailedError if no tuple has reached a worker, and BrokerError if retention has deleted all of them.
    """
    offset_reader = OffsetReader(settings.kafka)
    offsets = {topic: offset_reader.ranges(settings.topic(topic)) for topic in TOPICS}
    if starts is not None:
        offsets = {
            topic: {
                partition: (start, max(start, offsets[topic][partition][1]))
                for partition, start in starts[topic].items()
            }
            for topic in TOPICS
        }
    is_whole = starts is not None or not any(
        begin for topic in ("worker-input", "partials") for begin, _ in offsets[topic].values()
    )
    if not any(first < end for first, end in offsets["worker-input"].values()):
        from skewless.spark.pipeline_run import nothing_to_evaluate

        raise nothing_to_evaluate(settings, is_whole=is_whole)
    return ReadRange(offsets, is_whole)


def recorded(spark: SparkSession, settings: PipelineSettings, to_read: ReadRange) -> PipelineRun:
    """Return a run whose topics are read by Spark."""
    from skewless.spark import kafka_options
    from skewless.spark.pipeline_run import PipelineRun

    def read(topic: str) -> DataFrame:
        ranges = {settings.topic(topic): to_read.offsets[topic]}
        return kafka_options.read(spark, settings.kafka, ranges, headers=False)

    return PipelineRun(settings, read, *to_read)
