"""`skewless run`: one stage in the foreground, as in a container."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from skewless import topology
from skewless.commands.options import load_settings, pipeline_file


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
    settings = load_settings(file)
    _log_to_stderr()
    from skewless.runner import run_stage

    run_stage(stage, settings, instance, file=file, drain=drain)


def _log_to_stderr() -> None:
    """Log one readable line per event: our own from INFO on, those of libraries from WARNING on."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("skewless").setLevel(logging.INFO)
    # Faust tells of its services' every start and stop under the name of the class, which is ours.
    for chatty in ("skewless.transport.app", "skewless.transport.driver"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
