"""`skewless plan`: which grouping, and how many workers, would do for a topic, by Spark."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.commands.candidates import ALL, candidates_of
from skewless.commands.options import Finite, broker_of, load_settings, pipeline_file, results_folder, topic_of
from skewless.commands.spark_options import spark_options, started
from skewless.errors import CheckFailedError, ConfigurationError

if TYPE_CHECKING:
    from skewless.settings import PipelineSettings
    from skewless.spark.blocks import Reading
    from skewless.spark.lanes import Candidates
    from skewless.spark.recommend import Demand

SAMPLE = 2_000_000

_EPILOG = """\b
With -f records are read as the pipeline reads them, and its router's options hold. With --topic alone the key of a
record is the key, and its timestamp the time. OUT gets report.html (one file, with everything inside) and plan.json.

\b
Examples:
  skewless plan --topic orders --cost-ms 2
  skewless plan -f pipeline.yaml --sample all --workers 8,16,32 --rate 50000 --cost-ms 0.5 --out plan
"""


@click.command(epilog=_EPILOG)
@pipeline_file
@click.option("--topic", help="Topic to plan for. Default: the pipeline's source.")
@click.option(
    "--bootstrap-servers", help="Broker's host:port without -f. Default: $KAFKA_BOOTSTRAP_SERVERS, else localhost:9092."
)
@click.option(
    "--sample",
    default=f"{SAMPLE}",
    show_default=True,
    metavar="N",
    help="How many of the newest records to read, of every partition the same part; or all.",
)
@click.option("--workers", default="5,10,20,50", show_default=True, metavar="W,W,...", help="Numbers of workers.")
@click.option("--grouping", "groupings", default=ALL, show_default=True, help="Groupings to compare: all, or a,b.")
@click.option(
    "--routers", type=click.IntRange(1, 1024), help="Routers, each with local loads. Default: the pipeline's."
)
@click.option(
    "--cost-ms",
    type=Finite(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="What a tuple costs a worker, in ms.",
)
@click.option("--rate", type=Finite(min=0, min_open=True), help="Tuples per second to bear. Default: the topic's own.")
@click.option("--headroom", type=Finite(min=1), default=1.5, show_default=True, help="Times the rate.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="OUT", help="Folder for the report.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON.")
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
    cost_ms: float,
    rate: float | None,
    headroom: float,
    out: Path | None,
    as_json: bool,
    **spark: Any,
) -> None:
    """Run all groupings for several W over a sample of a topic, and recommend one of each, with the reason."""
    from skewless.spark.recommend import Demand

    settings = _settings(file, topic, bootstrap_servers)
    limit = _sample(sample)
    candidates = _candidates(settings, groupings, workers, routers)
    spans = _spans(settings, limit)
    if out is not None:
        results_folder(out)
    facts = planned(
        settings, _reading(settings, spans, parsed=file is not None), candidates, Demand(cost_ms, rate, headroom), spark
    )
    if out is not None:
        from skewless.spark.report.planning import report

        (out / "plan.json").write_text(json.dumps(facts), encoding="utf-8")
        (out / "report.html").write_text(report(facts), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(facts))
    else:
        _show(facts, out)


def planned(
    settings: PipelineSettings, reading: Reading, candidates: Candidates, demand: Demand, spark: dict[str, Any]
) -> dict[str, Any]:
    """Plan for the source topic of the settings; `spark`: what `started` takes."""
    with started("plan", spark) as running:
        from skewless.spark import kafka
        from skewless.spark.plan import plan as find

        records = kafka.read(
            running, kafka.client_options(settings), settings.source.topic, reading.spans, headers=False
        )
        facts = find(running, records, reading, candidates, demand)
    offsets = {str(partition): list(span) for partition, span in reading.spans.items()}
    return {"topic": settings.source.topic, "offsets": offsets, **facts}


def _settings(file: Path | None, topic: str | None, servers: str | None) -> PipelineSettings:
    from skewless.settings import PipelineSettings, SourceSettings

    if file is None and topic is None:
        raise ConfigurationError("--topic: missing; name the topic to plan for, or give a pipeline with -f")
    if file is not None and servers is not None:
        raise ConfigurationError(
            "--bootstrap-servers: the pipeline's file says it; change kafka.bootstrap_servers there"
        )
    settings = None if file is None else load_settings(file)
    if settings is not None and topic is None:
        return settings
    source = SourceSettings(topic=topic_of("--topic", topic or ""))
    if settings is not None:
        return settings.model_copy(update={"source": source})
    return PipelineSettings(name="plan", source=source, kafka=broker_of(servers))


def _sample(text: str) -> int | None:
    if text == ALL:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigurationError(f"--sample: {text!r} is neither a number of records nor {ALL}")
    return int(text)


def _candidates(settings: PipelineSettings, groupings: str, workers: str, routers: int | None) -> Candidates:
    from skewless.algorithms.grouping import GroupingOptions
    from skewless.simulation.candidate import Setup
    from skewless.spark.lanes import Candidates

    names, numbers = candidates_of([groupings], [workers])
    chosen = settings.router.model_dump(include=set(GroupingOptions.model_fields))
    options = GroupingOptions.model_validate(chosen | {"clock": "event"})  # the clock on the wall says nothing here
    setup = Setup(options, routers or max(1, settings.replicas.router), settings.aggregator.window_ms)
    return Candidates(names, sorted(numbers), setup)


def _spans(settings: PipelineSettings, limit: int | None) -> dict[int, tuple[int, int]]:
    from skewless.transport.positions import Positions

    positions, topic = Positions(settings.kafka), settings.source.topic
    begin, end = positions.begin(topic), positions.end(topic)
    total = sum(end[at] - first for at, first in begin.items())
    if total <= 0:
        raise CheckFailedError(f"topic {topic} is empty: there is nothing to plan by")
    part = 1.0 if limit is None else min(1.0, limit / total)
    return {at: (end[at] - round((end[at] - first) * part), end[at]) for at, first in begin.items()}


def _reading(settings: PipelineSettings, spans: dict[int, tuple[int, int]], *, parsed: bool) -> Reading:
    from skewless.algorithms.watermark import END_OF_TIME
    from skewless.spark.blocks import Reading
    from skewless.splitter.judgement import TimeRules

    rules, now = TimeRules.of(settings), time.time_ns() // 1_000_000
    if parsed:
        return Reading(settings.splitter, rules, spans, now)
    return Reading(None, replace(rules, lateness_ms=END_OF_TIME), spans, now)


def _show(facts: dict[str, Any], out: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from skewless.spark.report.planning import COLUMNS

    console = Console()
    stream = facts["stream"]
    console.print(
        f"{stream['tuples']:,} tuples, {stream['keys']:,} keys, the hottest has {stream['p1']:.2%}",
        highlight=False,
        soft_wrap=True,
    )
    shown = list(COLUMNS)[:6]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("grouping", *shown):
        table.add_column(name, justify="left" if name == "grouping" else "right")
    for each in facts["candidates"]:
        table.add_row(each["grouping"], *(COLUMNS[name](each) for name in shown))
    console.print(table)
    chosen = facts["recommendation"]
    console.print(f"\nRecommended: {chosen['grouping']} on {chosen['workers']} workers", style="bold", highlight=False)
    for reason in chosen["reasons"]:
        console.print(f"  {reason}", highlight=False, soft_wrap=True)
    if out is not None:
        console.print(f"Report: {out / 'report.html'}", highlight=False, soft_wrap=True)
