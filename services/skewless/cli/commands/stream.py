"""Implements `skewless stream`: runs a pipeline as a Structured Streaming query of Spark."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.cli.interrupts import received_signals
from skewless.cli.options import Duration, load_settings, pipeline_file
from skewless.cli.spark_options import spark_options
from skewless.errors import ConfigurationError
from skewless.lab.local.folders import state_folder
from skewless.lab.progress import hide, is_hidden
from skewless.spark.job_runner import check_start, spark_running

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.spark.stream_job import StreamJob
    from skewless.wire.state_schema import Engine

POLL_S = 0.5
IDLE_POLL_S = 1.0
DEFAULT_TRIGGER_S = 2.0
_PARTITIONS_GONE = "Some data may have been lost because they are not available in Kafka any more"
"""Spark's error for records that were deleted, also in a partition that is new to its checkpoint, and for partitions of
its checkpoint that are no longer read."""

_EPILOG = """\b
The query writes the topics of the stages: `status`, `top`, `results`, `audit`, `sink` and `mirror` work as with
`skewless up`. Spark's checkpoint has the offsets of its micro-batches. Everything else is in Kafka. A query that was
killed continues with the same checkpoint.

\b
Examples:
  skewless stream -f pipeline.yaml
  skewless stream -f pipeline.yaml --available-now
  skewless stream -f pipeline.yaml --master spark://host:7077 --trigger 10s --checkpoint s3a://bucket/shop
"""


@click.command(epilog=_EPILOG)
@pipeline_file
@click.option(
    "--trigger",
    "trigger_s",
    type=Duration(),
    metavar="DURATION",
    help="Time from the start of a micro-batch to that of the next one.  [default: 2s]",
)
@click.option("--available-now", is_flag=True, help="Exit with 0 when all records that exist at the start are read.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Folder of Spark's checkpoint; any path that Spark can write to.  [default: a folder of this user for the "
    "pipeline]",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Continue where the stages have committed, open windows included. They must be stopped, with no lag after the "
    "splitter.",
)
@click.option(
    "--hand-back",
    is_flag=True,
    help="Let the stages continue where a stopped query has committed, open windows included, and exit.",
)
@spark_options
def stream(  # noqa: PLR0913 - click passes an argument per option
    *,
    file: Path | None,
    trigger_s: float | None,
    available_now: bool,
    checkpoint: str | None,
    take_over: bool,
    hand_back: bool,
    **spark: Any,
) -> None:
    """Run a pipeline as a query of Spark, until Ctrl-C or SIGTERM. The results equal those of the stages.

    Spark replaces all stages but `sink` and `mirror`. They must not run. Windows stay open at the end, and the next run
    continues with them.
    """
    settings = load_settings(file)
    if available_now and trigger_s is not None:
        raise ConfigurationError("--trigger: not with --available-now, which ends after the records that exist")
    if take_over and hand_back:
        raise ConfigurationError("--take-over: not with --hand-back, which lets the stages continue instead of a query")
    if hand_back and (available_now or trigger_s is not None):
        raise ConfigurationError("--hand-back: not with --available-now or --trigger, because it starts no query")
    folder = checkpoint or str(state_folder() / "streams" / settings.full_name)
    default_checkpoint = None if checkpoint else folder
    if hand_back:
        _hand_over(settings, "services", default_checkpoint)
        return
    check_start(spark)  # before topics are created and offsets committed
    if take_over:
        _hand_over(settings, "spark", default_checkpoint)
    from skewless.spark.stream_start import members_of, prepare, unused_settings

    if unused := unused_settings(settings):
        click.echo(f"note: only the stages use {', '.join(unused)}", err=True)
    start = prepare(settings, lambda line: click.echo(line, err=True))
    is_quiet, show_again = is_hidden(), hide()  # a line per micro-batch takes the place of Spark's progress
    try:
        with contextlib.ExitStack() as running:
            members = [running.enter_context(member) for member in members_of(start)]
            session = running.enter_context(spark_running("stream", spark))
            from skewless.spark.stream_job import StreamJob

            for member in members:
                member.wait_until_joined()
            job = StreamJob(start, session, (lambda _: None) if is_quiet else click.echo)
            _run(job, settings, folder, None if available_now else trigger_s or DEFAULT_TRIGGER_S)
    finally:
        show_again()


def _hand_over(settings: PipelineSettings, to: Engine, default_checkpoint: str | None) -> None:
    """Let the stages or a query continue. The default checkpoint of an earlier query, which they end, is removed."""
    from skewless.spark.stream_handover import hand_over
    from skewless.spark.stream_start import check_settings

    if to == "spark":
        check_settings(settings)
    changed = hand_over(settings, to, lambda line: click.echo(line, err=True))
    if changed and default_checkpoint is not None:
        shutil.rmtree(default_checkpoint, ignore_errors=True)
    engine = "a query of Spark" if to == "spark" else "the stages"
    click.echo(f"pipeline {settings.name} {'continues with' if changed else 'has already continued with'} {engine}")


def _run(job: StreamJob, settings: PipelineSettings, folder: str, trigger_s: float | None) -> None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from skewless.spark.stream_start import check_sources, partitions_gone

    try:
        with received_signals() as signals, job.running(folder, trigger_s) as query:
            click.echo(f"pipeline {settings.name}, checkpoint in {folder}")
            _wait(job, query, signals)
            if trigger_s is None and not signals:
                job.advance_idle(ended=True)
    except (PySparkException, Py4JJavaError) as error:
        check_sources(job.start)
        if _PARTITIONS_GONE in str(error):
            raise partitions_gone(folder) from None
        raise
    click.echo(f"{job.records:,} records read")
    if trigger_s is None and signals:
        sys.exit(128 + signals[0])  # with 0 it would have read all


def _wait(job: StreamJob, query: StreamingQuery, signals: list[int]) -> None:
    """Wait until the query or a signal ends the run."""
    looked_at = time.monotonic()
    while not signals and not query.awaitTermination(POLL_S):
        if time.monotonic() > looked_at + IDLE_POLL_S:
            looked_at = time.monotonic()
            job.advance_idle()
