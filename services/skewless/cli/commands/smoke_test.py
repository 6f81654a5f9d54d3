"""Implements `skewless smoke-test`: sends records through a running pipeline and checks their counts."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from skewless.cli.options import FiniteFloat, load_settings, pipeline_file
from skewless.smoke_test import check

_EPILOG = """\b
The records have unique keys and the event time of the newest record in the source, so no result of another key
changes. Exit code 1 means that a count is missing or wrong. Stages without a process are named after 10 seconds.
With aggregator.emit: final, the counts come only when newer records arrive, which close their window.

\b
Example:
  skewless smoke-test -f pipeline.yaml --records 1000 --timeout 120
"""


@click.command("smoke-test", epilog=_EPILOG)
@pipeline_file
@click.option(
    "--records",
    "count",
    type=click.IntRange(1, 1_000_000),
    default=1_000,
    show_default=True,
    help="Number of records to send.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteFloat(1),
    default=120.0,
    show_default=True,
    help="Seconds to wait for the correct counts.",
)
def smoke_test(file: Path | None, count: int, timeout_s: float) -> None:
    """Send records with unique keys to the source topic, and check their counts in the results."""
    prefix = f"flowcheck{secrets.token_hex(5)}x"
    result = check.run(load_settings(file), count, prefix, timeout_s)
    click.echo(
        f"sent {result.records:,} records to partition {result.partition} of the source: "
        f"the counts of {result.cells} keys are correct after {result.seconds:.1f} s"
    )
