"""Implements `skewless run`: runs one stage, or all of them, in the foreground, as in a container."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import click

from skewless import topology
from skewless.cli.interrupts import TERMINATED
from skewless.cli.options import load_settings, pipeline_file, take_over
from skewless.errors import ConfigurationError

COLLECTION = (1_000_000, 50, 50)
"""Thresholds of Python's garbage collector: new objects, then collections of the younger generation.

A poll allocates tens of thousands of objects without reference cycles. With the default of 700 objects the collector
takes a fifth of a splitter's CPU time and finds nothing.
"""
STAGES = [row.name for row in topology.STAGES]


# Usage names the argument only: a list of all stages is broken within a name where the line ends.
@click.command(epilog=f"Stages: {', '.join(STAGES)}; all.")
@click.argument("stage", type=click.Choice([*STAGES, topology.ALL_STAGES]), metavar="STAGE")
@pipeline_file
@click.option(
    "--instance",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of this process within its stage; must be unique. Always 0 for `all`.",
)
@click.option("--drain", is_flag=True, help="Process the records that the source has now, and exit with 0.")
@take_over
def run(stage: str, file: Path | None, instance: int, *, drain: bool, take_over: bool) -> None:
    """Run one stage until SIGTERM, or `all` stages of the pipeline in one process.

    A process with all stages has the topics and consumer groups of one process per stage: each can take over from the
    other. If a stage fails, the process ends.

    On a terminal, the command ends with exit code 3 if the same process runs already, as `skewless up` does. Elsewhere,
    as in a container, it always replaces an earlier process with the same --instance.

    \b
    Examples:
      skewless run router -f pipeline.yaml --instance 1
      skewless run all -f pipeline.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    if stage == topology.ALL_STAGES and instance:
        raise ConfigurationError("--instance: one process runs all stages; to run more, run each stage on its own")
    if instance and stage != topology.ALL_STAGES and topology.stage(stage).singleton:
        raise ConfigurationError(f"--instance: {stage} has one process, so its number is always 0")
    if stage == topology.ALL_STAGES and drain:
        raise ConfigurationError("--drain: use `skewless up --drain`, which runs each stage until its input has ended")
    with ExitStack() as stack:
        stack.enter_context(ended_by_sigterm(TERMINATED if drain else 0))
        # Objects that imports create live for the whole process. The collector need not search them: it is off while
        # they are created, and gc.freeze() excludes them from then on.
        gc.disable()
        try:
            settings = load_settings(file)
            from skewless.monitoring import logs
            from skewless.service import run_stages

            gc.freeze()
        finally:
            gc.set_threshold(*COLLECTION)
            gc.enable()
        stages = [stage]
        if stage == topology.ALL_STAGES:
            stages = [row.name for row in topology.needed_stages(settings)]
        logs.set_up(settings.log, {"pipeline": settings.full_name, "stage": stage, "instance": instance})
        if sys.stdin.isatty():
            from skewless.lab.local.published_processes import published, registering
            from skewless.operations.running_processes import check_not_running

            names = [f"{each}-{instance}" for each in stages]
            try:
                with registering(settings):
                    for note in () if take_over else check_not_running(settings, names):
                        click.echo(f"note: {note}", err=True)
                    stack.enter_context(published(settings, dict.fromkeys(names, settings.metrics.port)))
            except ConfigurationError as error:
                click.echo(f"note: no other command on this machine sees this process: {error}", err=True)
        received = run_stages(stages, settings, instance, file=file, drain=drain)
    if received and (drain or received == signal.SIGINT):
        sys.exit(128 + received)  # SIGTERM is the regular end of a stage without a bound


@contextmanager
def ended_by_sigterm(code: int) -> Iterator[None]:
    """End the process with this exit code at SIGTERM, until the stages have a handler of their own.

    It has processed nothing yet. As the first process of a container, it would not be ended without a handler.
    """
    is_ended = False

    def end(_number: int, _frame: object) -> NoReturn:
        nonlocal is_ended
        is_ended = True
        raise SystemExit(code)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except Exception:
        # A Kafka client that is being created replaces SystemExit by an error of its own.
        if is_ended:
            raise SystemExit(code) from None
        raise
