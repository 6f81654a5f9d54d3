"""`skewless evaluate`: what recorded runs tell of their groupings, by Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.commands.options import load_settings, results_folder
from skewless.commands.spark_options import spark_options, started
from skewless.errors import CheckFailedError, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skewless.settings import PipelineSettings
    from skewless.spark.recorded import Offsets, Recorded

FACTS = "evaluation.json"
TABLES = ("cells", "keys")
TOPICS = ("worker-input", "tuples", "partials", "windows", "control", "distribution")

_EPILOG = """\b
The pipelines' own topics are read, from their beginnings to where they end now; nothing is written to them. OUT gets
report.html (one file, with everything inside), evaluation.json, and as Parquet cells (tuples by time, key and worker)
and keys (tuples and workers of each key).

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
    help="A pipeline's YAML file; several are compared.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="evaluation",
    show_default=True,
    metavar="OUT",
    help="Folder for the results; those of an earlier evaluation are replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON.")
@spark_options
def evaluate(*, files: tuple[Path, ...], out: Path, as_json: bool, **spark: Any) -> None:
    """Measure how even the load of pipelines was, and at what price; compare them in a report."""
    runs = [load_settings(file) for file in files]
    names = [settings.name for settings in runs]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"-f: pipelines of the same name ({', '.join(names)}) have the same topics")
    results_folder(out, FACTS, TABLES)
    facts = evaluated(runs, out, spark)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for run in facts["runs"]:
        click.echo(_line(run))
    click.echo(f"Report: {out / 'report.html'}")


def evaluated(runs: Sequence[PipelineSettings], out: Path, spark: dict[str, Any]) -> dict[str, Any]:
    """Evaluate pipelines, write everything into the folder, and return the facts; `spark`: what `started` takes."""
    offsets = [offsets_of(settings) for settings in runs]
    with started("evaluate", spark) as running:
        from skewless.spark.evaluate import evaluate as measure

        facts = measure(running, [recorded(running, *each) for each in zip(runs, offsets, strict=True)], out)
    from skewless.spark.report.evaluation import report

    (out / FACTS).write_text(json.dumps(facts), encoding="utf-8")
    (out / "report.html").write_text(report(facts), encoding="utf-8")
    return facts


def offsets_of(settings: PipelineSettings) -> Offsets:
    """Find what there is to read of each topic; CheckFailedError when no tuple has reached a worker."""
    from skewless.transport.positions import Positions

    positions = Positions(settings.kafka)
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in TOPICS:
        name = settings.topic(topic)
        ends = positions.end(name)
        found[topic] = {at: (first, max(first, ends[at])) for at, first in positions.begin(name).items()}
        if topic == "worker-input" and all(first == end for first, end in found[topic].values()):
            raise CheckFailedError(f"topic {name} has no tuples: run the pipeline first, then evaluate")
    return found


def recorded(spark: SparkSession, settings: PipelineSettings, offsets: Offsets) -> Recorded:
    """Let Spark read the topics of a pipeline."""
    from skewless.spark import kafka
    from skewless.spark.recorded import Recorded

    client = kafka.client_options(settings)

    def read(topic: str) -> DataFrame:
        return kafka.read(spark, client, settings.topic(topic), offsets[topic], headers=False)

    return Recorded(settings, read, offsets)


def _line(run: dict[str, Any]) -> str:
    latency = run["latency_ms"]
    return (
        f"{run['pipeline']}: {run['grouping']} on {run['workers']} workers, {run['tuples']:,} tuples, "
        f"{run['keys']:,} keys: max/avg {run['max_over_avg']:.3f}{_worst(run)}, I/m {run['imbalance']:.1e}, "
        f"{run['replication']:.3f} workers per key"
        + (f", latency p50 {latency['p50']:,.0f} ms, p99 {latency['p99']:,.0f} ms" if latency else "")
    )


def _worst(run: dict[str, Any]) -> str:
    worst = run["worst_window_max_over_avg"]
    return "" if worst is None else f" (worst window {worst:.3f})"
