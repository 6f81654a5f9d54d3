"""Evaluates pipelines: runs the Spark job over their topics, and writes the results into a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skewless.spark.job_runner import spark_running
from skewless.spark.pipeline_run import PipelineRun

EVALUATION_FILE, REPORT_FILE = "evaluation.json", "report.html"
TABLES = ("cells", "keys")


def evaluated(runs: Sequence[PipelineRun], spark: dict[str, Any], tables: Path | None = None) -> dict[str, Any]:
    """Evaluate pipelines, and return the evaluation as a JSON object.

    `spark`: the options of `spark_running`. `tables`: the folder for the Parquet files; None: they are not written.
    """
    with spark_running("evaluate", spark) as session:
        from skewless.spark.evaluate_job import evaluate

        return evaluate(session, runs, tables)


def write_results(evaluation: dict[str, Any], out: Path) -> Path:
    """Write the evaluation as JSON and as a report into the folder. Returns the file of the report."""
    (out / EVALUATION_FILE).write_text(json.dumps(evaluation), encoding="utf-8")
    file = out / REPORT_FILE
    write_report(evaluation, file)
    return file


def write_report(evaluation: dict[str, Any], file: Path) -> None:
    """Write the report of an evaluation."""
    from skewless.spark.report.evaluation_report import report

    file.write_text(report(evaluation), encoding="utf-8")
