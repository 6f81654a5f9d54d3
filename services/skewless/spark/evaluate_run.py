"""Evaluates pipelines: runs the Spark job over their topics, and writes the results into a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.spark.job_runner import spark_running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skewless.spark.pipeline_run import Offsets, PipelineRun

EVALUATION_FILE = "evaluation.json"
TABLES = ("cells", "keys")
TOPICS = ("worker-input", "tuples", "partials", "aggregator-changelog", "router-state", "distribution")


def evaluated(runs: Sequence[PipelineSettings], spark: dict[str, Any], tables: Path | None = None) -> dict[str, Any]:
    """Evaluate pipelines, and return the evaluation as a JSON object.

    `spark`: the options of `spark_running`. `tables`: the folder for the Parquet files; None: they are not written.
    """
    offsets = [offsets_of(settings) for settings in runs]
    with spark_running("evaluate", spark) as session:
        from skewless.spark.evaluate_job import evaluate

        pipeline_runs = [
            recorded(session, settings, run_offsets) for settings, run_offsets in zip(runs, offsets, strict=True)
        ]
        return evaluate(session, pipeline_runs, tables)


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


def offsets_of(settings: PipelineSettings) -> Offsets:
    """Return the offsets to read by topic and partition.

    Raises CheckFailedError if no tuple has reached a worker, or neither tuples nor measures of them are left.
    """
    offset_reader = OffsetReader(settings.kafka)
    offsets: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in TOPICS:
        name = settings.topic(topic)
        end_offsets = offset_reader.end(name)
        offsets[topic] = {
            partition: (first, max(first, end_offsets[partition]))
            for partition, first in offset_reader.begin(name).items()
        }
    if not any(_has_records(offsets[topic]) for topic in ("worker-input", "distribution")):
        from skewless.spark.pipeline_run import nothing_to_evaluate

        raise nothing_to_evaluate(settings)
    return offsets


def _has_records(ranges: Mapping[int, tuple[int, int]]) -> bool:
    return any(first < end for first, end in ranges.values())


def recorded(spark: SparkSession, settings: PipelineSettings, offsets: Offsets) -> PipelineRun:
    """Return a run whose topics are read by Spark."""
    from skewless.spark import kafka_options
    from skewless.spark.pipeline_run import PipelineRun

    client = kafka_options.client_options(settings)

    def read(topic: str) -> DataFrame:
        return kafka_options.read(spark, client, settings.topic(topic), offsets[topic], headers=False)

    return PipelineRun(settings, read, offsets)
