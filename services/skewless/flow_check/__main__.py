"""`python -m skewless.flow_check --file pipeline.yaml`: exit code 0 when all counts are right, 1 when not."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import click

from skewless.commands.options import load_settings, pipeline_file
from skewless.errors import SkewlessError
from skewless.flow_check import check


@click.command()
@pipeline_file
@click.option("--records", "count", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True)
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=120.0, show_default=True, help="Seconds.")
def main(file: Path | None, count: int, timeout_s: float) -> None:
    """Send records with keys of their own into the source topic, and check the counts that come out."""
    prefix = f"flowcheck{secrets.token_hex(5)}x"
    try:
        passed = check.run(load_settings(file), count, prefix, timeout_s)
    except SkewlessError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    click.echo(
        f"{passed.records:,} records into partition {passed.partition} of the source: "
        f"the counts of {passed.cells} keys are right, after {passed.seconds:.1f} s"
    )


if __name__ == "__main__":
    main(prog_name="python -m skewless.flow_check")
