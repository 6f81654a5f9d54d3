"""Implements `skewless test`: runs a pipeline over the records of test cases, without Kafka."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from skewless.cli.options import load_settings, pipeline_file
from skewless.cli.plain_text import counted, printable
from skewless.errors import CheckFailedError, ConfigurationError

_EPILOG = """\b
CASES is a YAML file with a list `cases`. A case has a name and
  values     values of the records, or `records`: value, key, timestamp, partition, topic, headers of each
  results    the results that must be computed; only the fields that are given are compared
  late       late tuples and late records of a join, or their number.   [default: 0]
  invalid    invalid records, or their number.   [default: 0]
  topics     records of other public topics by name
  now        time of the run.   [default: the clock]

\b
Example:
  skewless test -f pipeline.yaml cases.yaml
"""


@click.command(epilog=_EPILOG)
@click.argument("cases", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@pipeline_file
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per case.")
def test(*, cases: tuple[Path, ...], file: Path | None, as_json: bool) -> None:
    """Run a pipeline over records of test cases in memory, and compare its results with the expected ones.

    The steps are those of the stages. No broker is needed, and a case takes milliseconds. Exits with 1 and every
    difference if a case fails.
    """
    settings = load_settings(file)
    from skewless.testing.cases import check, read_cases

    read = [(path, case) for path in cases for case in read_cases(path, settings)]
    failed, now_ms = 0, time.time_ns() // 1_000_000
    for path, case in read:
        try:
            differences = check(settings, case, now_ms)
        except ConfigurationError as error:
            raise ConfigurationError(*(f"{path}: {case.name}: {problem}" for problem in error.problems)) from None
        failed += bool(differences)
        if as_json:
            outcome = {"file": str(path), "name": case.name, "passed": not differences, "differences": differences}
            click.echo(json.dumps(outcome))
            continue
        click.echo(f"{'FAILED' if differences else 'passed'}  {printable(case.name)}")
        for difference in differences:
            click.echo(f"  {printable(difference)}")
    if failed:
        raise CheckFailedError(f"pipeline {settings.name}: {failed} of {counted(len(read), 'case')} failed")
