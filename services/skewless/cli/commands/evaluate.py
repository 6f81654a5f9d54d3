"""Implements `skewless evaluate`: measures the load balance of recorded runs with Spark and compares them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from skewless.cli.options import load_settings, prepare_output_folder
from skewless.cli.spark_options import spark_options
from skewless.errors import ConfigurationError
from skewless.spark.evaluate_run import EVALUATION_FILE, REPORT_FILE, TABLES, evaluated, write_results
from skewless.spark.job_runner import check_start
from skewless.spark.pipeline_run import run_of
from skewless.spark.report import require_packages

_EPILOG = """\b
Reads the internal topics of the pipelines from the beginning to the current end, and writes nothing to Kafka. Retention
deletes their records (topics.internal_retention_s). OUT receives report.html (self-contained), evaluation.json, and as
Parquet the tables cells (tuples by time, key and worker) and keys (tuples and workers of each key).

\b
Examples:
  skewless evaluate -f pipeline.yaml
  skewless evaluate -f by-key.yaml -f even.yaml --out comparison
"""


@click.command(epilog=_EPILOG)
@click.option(
    "-f",
    "--file",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    metavar="FILE",
    help="A pipeline's YAML file. Repeat it to compare pipelines.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="evaluation",
    show_default=True,
    metavar="OUT",
    help="Folder for the results; the results of an earlier evaluation are replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
@spark_options
def evaluate(*, files: tuple[Path, ...], out: Path, as_json: bool, **spark: Any) -> None:
    """Measure the load balance of pipelines and its cost, and compare the pipelines in a report."""
    require_packages()
    runs = [load_settings(file) for file in files]
    for settings in runs:
        _ = settings.aggregated  # an error if the pipeline only joins
    names = [settings.full_name for settings in runs]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"-f: pipelines of the same name ({', '.join(names)}) have the same topics")
    check_start(spark)
    prepare_output_folder(out, [EVALUATION_FILE, REPORT_FILE], TABLES)
    evaluation = evaluated([run_of(settings) for settings in runs], spark, tables=out)
    report = write_results(evaluation, out)
    if as_json:
        click.echo(json.dumps(evaluation))
        return
    for run in evaluation["runs"]:
        click.echo(_line(run))
    for comparison in evaluation["comparisons"]:
        click.echo(comparison["summary"])
    click.echo(f"Report: {report}")


def _line(run: dict[str, Any]) -> str:
    completed = run["completed"]
    return (
        f"{run['pipeline']}: {run['grouping']} on {run['workers']} workers, {run['tuples']:,} tuples, "
        f"{run['keys']:,} keys"
        + (f": {completed['tuples_per_s']:,.0f} completed/s, {completed['waiting']:,} waiting" if completed else "")
        + f": max/avg {run['max_over_avg']:.3f}{_worst_window(run)}, I/m {run['imbalance']:.1e}"
        + f", {run['replication_factor']:.3f} workers per key"
        + _latency(run["latency_ms"])
    )


def _latency(latency: dict[str, Any] | None) -> str:
    return f", latency p50 {latency['p50']:,.0f} ms, p99 {latency['p99']:,.0f} ms" if latency else ""


def _worst_window(run: dict[str, Any]) -> str:
    max_over_avg = run["worst_window_max_over_avg"]
    return "" if max_over_avg is None else f" (worst window {max_over_avg:.3f})"
