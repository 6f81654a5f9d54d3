"""`skewless run`: one stage in the foreground, as in a container."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from skewless import topology
from skewless.commands.options import load_settings, pipeline_file

COLLECTION = (1_000_000, 50, 50)
"""Objects, then collections of the younger generation, after which Python looks for cycles. A poll brings 10,000s of
objects without one: at the default of 700 the search takes a fifth of a splitter's CPU, and finds nothing."""


@click.command()
@click.argument("stage", type=click.Choice([row.name for row in topology.STAGES]))
@pipeline_file
@click.option(
    "--instance",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of this process among those of its stage; each needs its own.",
)
@click.option("--drain", is_flag=True, help="End (exit 0) once everything up to the end of the source is processed.")
def run(stage: str, file: Path | None, instance: int, *, drain: bool) -> None:
    """Run one stage until SIGTERM.

    \b
    Example:
      skewless run router -f pipeline.yaml --instance 1
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    gc.disable()  # what modules make stays: nothing is found among it, now or later
    try:
        settings = load_settings(file)
        from skewless.runner import run_stage
        from skewless.watch import logs

        gc.freeze()
    finally:
        gc.set_threshold(*COLLECTION)
        gc.enable()
    logs.set_up(settings.log, {"pipeline": settings.name, "stage": stage, "instance": instance})
    run_stage(stage, settings, instance, file=file, drain=drain)
