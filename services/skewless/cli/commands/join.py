"""Implements `skewless join`: checks whether the topics of a join fit together."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless.cli.options import load_settings, no_progress, pipeline_file
from skewless.cli.plain_text import counted
from skewless.errors import CheckFailedError

if TYPE_CHECKING:
    from skewless.lab.inspection.join_check import JoinCheck

DEFAULT_RECORDS = 100_000


@click.group()
def join() -> None:
    """Check whether the topics of a join fit together. The section `join` of the pipeline's file names them."""


@join.command()
@pipeline_file
@click.option(
    "--records",
    type=click.IntRange(min=1),
    default=DEFAULT_RECORDS,
    show_default=True,
    help="Number of records to read of each topic: the newest ones.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all measures as one JSON object.")
@no_progress
def check(file: Path | None, *, records: int, as_json: bool) -> None:
    """Read a sample of both topics, and compare it with the settings. Exit with 1 and every problem otherwise.

    Checks that the topics are co-partitioned (an id has the same partition number in both, and is the record key), that
    they keep records long enough, and that the settings tolerate their disorder. Reads without a consumer group and
    writes nothing.

    \b
    Examples:
      skewless join check -f pipeline.yaml
      skewless join check -f pipeline.yaml --records 1000000 --json
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.lab.inspection.join_check import check_join
    from skewless.lab.progress import report_progress

    with report_progress("reading", None, time.monotonic()) as progress:
        found = check_join(settings, records, progress)
    click.echo(json.dumps(_json(found)) if as_json else "\n".join(_lines(found)))
    if found.problems:
        raise CheckFailedError(f"the topics do not fit the join: {counted(len(found.problems), 'problem')}")


def _json(found: JoinCheck) -> dict[str, Any]:
    return {
        "sides": {
            side.value: {
                "topic": sample.topic,
                "partitions": sample.partitions,
                "records": sample.records,
                "invalid_by_reason": dict(sample.invalid),
                "foreign_keys": sample.foreign_keys,
                "late": sample.late,
                "disorder_ms": sample.disorder_ms,
                "tolerated_disorder_ms": sample.tolerated_ms,
            }
            for side, sample in found.samples.items()
        },
        "shared_ids": found.shared_ids,
        "scattered_ids": found.scattered_ids,
        "problems": found.problems,
    }


def _lines(found: JoinCheck) -> Iterator[str]:
    for side, sample in found.samples.items():
        yield (
            f"{side.value:8} topic {sample.topic}: {counted(sample.partitions, 'partition')}, "
            f"{counted(sample.records, 'record')} read, disorder {sample.disorder_ms / 1000:g} s of "
            f"{sample.tolerated_ms / 1000:g} s tolerated"
        )
    yield (
        f"ids      {found.shared_ids:,} in both samples, {found.scattered_ids:,} of them in different partition numbers"
    )
    yield from (f"problem  {problem}" for problem in found.problems)
