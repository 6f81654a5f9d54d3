"""Implements `skewless plan`: recommends a grouping and the number of workers for a topic."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from skewless.cli.options import (
    FiniteFloat,
    bootstrap_servers_option,
    default_file,
    kafka_of,
    load_settings,
    optional_pipeline_file,
    prepare_output_folder,
    topic_of,
    with_servers,
)
from skewless.cli.spark_options import spark_options
from skewless.errors import ConfigurationError
from skewless.spark.job_runner import spark_running
from skewless.spark.report import require_packages
from skewless.spark.submission import is_submitted

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings, SourceSettings
    from skewless.lab.simulation.recommend import Demand
    from skewless.lab.simulation.simulation import Simulation
    from skewless.lab.simulation.tuple_blocks import ReadPlan

SAMPLE = 2_000_000
ALL = "all"
PLAN_FILE, REPORT_FILE = "plan.json", "report.html"

_EPILOG = """\b
With -f the records are parsed as the pipeline parses them, and the options of its router apply. With --topic alone
the Kafka key and timestamp of a record are used. OUT receives report.html (self-contained) and plan.json.

\b
Examples:
  skewless plan --topic orders --cost-per-tuple-ms 2
  skewless plan -f pipeline.yaml --sample all --workers 8,16,32 --rate 50000 --cost-per-tuple-ms 0.5 --out plan
"""


@click.command(epilog=_EPILOG)
@optional_pipeline_file
@click.option("--topic", help="Topic to plan for. Default: the pipeline's source.")
@bootstrap_servers_option("those of the pipeline with -f, else ")
@click.option(
    "--sample",
    default=f"{SAMPLE}",
    show_default=True,
    metavar="N",
    help="Number of newest records to read, the same fraction of each partition; or all.",
)
@click.option("--workers", default="5,10,20,50", show_default=True, metavar="W,W,...", help="Numbers of workers.")
@click.option("--grouping", "groupings", default=ALL, show_default=True, help="Groupings to compare: all, or a,b.")
@click.option(
    "--routers",
    type=click.IntRange(1, 1024),
    help="Number of routers, each with its own load counts. Default: the pipeline's.",
)
@click.option(
    "--cost-per-tuple-ms",
    type=FiniteFloat(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Processing time of a tuple on a worker, in ms.",
)
@click.option(
    "--rate", type=FiniteFloat(min=0, min_open=True), help="Required tuples per second. Default: the topic's rate."
)
@click.option(
    "--headroom", type=FiniteFloat(min=1), default=1.5, show_default=True, help="Required multiple of the rate."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="OUT", help="Folder for the report.")
@click.option("--json", "as_json", is_flag=True, help="Print all results as JSON.")
@spark_options
def plan(  # noqa: PLR0913 - click passes an argument per option
    *,
    file: Path | None,
    topic: str | None,
    bootstrap_servers: str | None,
    sample: str,
    workers: str,
    groupings: str,
    routers: int | None,
    cost_per_tuple_ms: float,
    rate: float | None,
    headroom: float,
    out: Path | None,
    as_json: bool,
    **spark: Any,
) -> None:
    """Run groupings for several numbers of workers on a sample of a topic, and recommend one combination.

    The reasons of the recommendation are printed. A sample of more than 5,000,000 records is read with Spark, and
    so is any sample if an option of Spark is given. A smaller one stays in the memory of this process.
    """
    from skewless.lab.simulation import planning
    from skewless.lab.simulation.candidates import candidates_of
    from skewless.lab.simulation.recommend import Demand

    if out is not None:
        require_packages()
    if topic is None and bootstrap_servers is None:
        file = file or default_file()
    settings = _settings(file, topic, bootstrap_servers)
    limit = _sample(sample)
    simulation = planning.simulation_of(settings, *candidates_of([groupings], [workers], prefix="--"), routers)
    ranges = planning.sample_ranges(settings, limit)
    if out is not None:
        prepare_output_folder(out, [PLAN_FILE, REPORT_FILE])
    read_plan = planning.read_plan_of(settings, ranges, parsed=file is not None, now_ms=time.time_ns() // 1_000_000)
    demand = Demand(cost_per_tuple_ms, rate, headroom, commits_per_s=1 / settings.transport.commit_interval_s)
    records = sum(end - first for first, end in ranges.values())
    if records > planning.LOCAL_RECORDS or _has_spark_option(spark):
        document = planned(settings, read_plan, simulation, demand, spark)
    else:
        document = _planned_here(settings, read_plan, simulation, demand)
    if out is not None:
        from skewless.spark.report.planning_report import report

        (out / PLAN_FILE).write_text(json.dumps(document), encoding="utf-8")
        (out / REPORT_FILE).write_text(report(document), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(document))
    else:
        _show(document, out)


def planned(
    settings: PipelineSettings, read_plan: ReadPlan, simulation: Simulation, demand: Demand, spark: dict[str, Any]
) -> dict[str, Any]:
    """Return the JSON document of a plan for the source topic, read with Spark and the options in `spark`."""
    from skewless.lab.simulation import planning

    with spark_running("plan", spark) as session:
        from skewless.spark import kafka_options
        from skewless.spark.plan_job import plan as run_plan

        ranges = {settings.topic("source"): read_plan.offset_ranges}
        records = kafka_options.read(session, settings.kafka, ranges, headers=read_plan.splitter.reads_headers)
        found = run_plan(records, read_plan, simulation, demand)
    return planning.document(settings.topic("source"), read_plan, found)


def _has_spark_option(spark: Mapping[str, Any]) -> bool:
    context = click.get_current_context()
    return is_submitted() or any(context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in spark)


def _planned_here(
    settings: PipelineSettings, read_plan: ReadPlan, simulation: Simulation, demand: Demand
) -> dict[str, Any]:
    """Return the JSON document of a plan for the source topic, read in this process."""
    from skewless.lab.progress import report_progress
    from skewless.lab.simulation import planning

    topic, records = settings.topic("source"), sum(end - first for first, end in read_plan.offset_ranges.values())
    with report_progress("reading", records, time.monotonic()) as progress:
        blocks = planning.read_blocks(settings.kafka, topic, read_plan, progress)
    work, tuples = f"measuring {len(simulation.runs)} candidates", sum(block.tuples for block in blocks)
    with report_progress(work, tuples, time.monotonic(), unit="tuples") as progress:
        return planning.document(topic, read_plan, planning.plan(blocks, simulation, demand, progress))


def _settings(file: Path | None, topic: str | None, servers: str | None) -> PipelineSettings:
    from skewless.config.pipeline_settings import PipelineSettings

    if file is None:
        if topic is None:
            raise ConfigurationError("--topic: missing; name the topic to plan for, or give a pipeline with -f")
        return PipelineSettings(name="plan", source=_source(topic), kafka=kafka_of(servers))
    settings = load_settings(file)
    source = {} if topic is None else {"source": _source(topic)}
    return settings.model_copy(update={"kafka": with_servers(settings.kafka, servers), **source})


def _source(topic: str) -> SourceSettings:
    from skewless.config.pipeline_settings import SourceSettings

    return SourceSettings(topic=topic_of("--topic", topic))


def _sample(text: str) -> int | None:
    if text == ALL:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigurationError(f"--sample: {text!r} is neither a number of records nor {ALL}")
    return int(text)


def _show(planning: dict[str, Any], out: Path | None) -> None:
    from rich.table import Table

    from skewless.cli.wide_console import wide_console
    from skewless.spark.report.planning_report import COLUMNS

    console = wide_console()
    stream = planning["stream"]
    console.print(
        f"{stream['tuples']:,} tuples, {stream['keys']:,} keys, the hottest has {stream['p1']:.2%}",
        soft_wrap=True,
    )
    if stream["late"] or stream["bad"]:
        console.print(
            f"{stream['late']:,} late tuples and {stream['bad']:,} invalid records are left out, also from the rate",
            soft_wrap=True,
        )
    columns = list(COLUMNS)[:7]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("grouping", *columns):
        table.add_column(name, justify="left" if name == "grouping" else "right")
    for candidate in planning["candidates"]:
        table.add_row(candidate["grouping"], *(COLUMNS[name](candidate) for name in columns))
    console.print(table)
    recommendation = planning["recommendation"]
    shortfall = "" if recommendation["sufficient"] else ", although that is too few for the rate"
    console.print(
        f"\nRecommended: {recommendation['grouping']} on {recommendation['workers']} workers{shortfall}",
        style="bold",
    )
    for reason in recommendation["reasons"]:
        console.print(f"  {reason}", soft_wrap=True)
    if out is not None:
        console.print(f"Report: {out / REPORT_FILE}", soft_wrap=True)
