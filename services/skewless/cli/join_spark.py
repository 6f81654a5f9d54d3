"""The join in `skewless batch` and `skewless audit`: which offsets they read, and what they print."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skewless import topology
from skewless.algorithms.join.window_join import Side
from skewless.errors import CheckFailedError, ConfigurationError
from skewless.kafka.consumer.offsets import OffsetRanges, OffsetReader
from skewless.operations.offset_range import committed_by_stage, has_lag, offset_ranges
from skewless.spark.job_runner import spark_running

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.spark.batch_job import Folder

JOIN_OPTION = click.option(
    "--join", "of_join", is_flag=True, help="Process the join. Default for a pipeline that only joins."
)
ATTEMPTS = 20
"""Attempts to read offsets between two commits of a running join."""
RETRY_S = 0.3

Ranges = dict[str, OffsetRanges]
"""First offset (inclusive) and end offset (exclusive), by topic of the topology and partition."""


def is_wanted(settings: PipelineSettings, *, of_join: bool) -> bool:
    """Return whether a command processes the join. Raises ConfigurationError if the pipeline has none."""
    if of_join and settings.join is None:
        raise ConfigurationError(f"--join: pipeline {settings.name} joins nothing, its file has no section join")
    return of_join or settings.source is None


def batch(settings: PipelineSettings, start: str, end: str, target: Folder, spark: Mapping[str, Any]) -> dict[str, Any]:
    """Compute the records of the join, write them, and return the report."""
    offset_reader = OffsetReader(settings.kafka)
    ranges: Ranges = {
        side.value: offset_ranges(
            offset_reader, settings, start, end, stage=_reader(settings, side), topic=settings.topic(side.value)
        )
        for side in Side
    }
    if all(first == last for topic in ranges.values() for first, last in topic.values()):
        topics = " and ".join(settings.topic(side.value) for side in Side)
        raise CheckFailedError(f"topics {topics} have no records in this range: nothing to join")
    with spark_running("batch", dict(spark)) as session:
        from skewless.spark import join_job

        records = join_job.read_sides(session, settings, ranges)
        report = join_job.run(records, settings, ranges, target, now=round(time.time() * 1000))
    source = {side: {"topic": settings.topic(side), "offsets": offsets} for side, offsets in ranges.items()}
    return {"pipeline": settings.name, "source": source, "written_to": target.path, **report}


def audit_ranges(offset_reader: OffsetReader, settings: PipelineSettings) -> Ranges:
    """Return what an audit of the join reads: both topics up to the committed offsets, and all results.

    Raises CheckFailedError if the join commits all the time, and ConfigurationError if records were deleted.
    """
    from skewless.spark.join_job import MERGED_TOPICS, OUTPUTS

    merged = tuple(MERGED_TOPICS.values()) if topology.REPARTITIONED.holds(settings) else ()
    for _ in range(ATTEMPTS):
        before = _committed(offset_reader, settings)
        written = {topic: offset_reader.ranges(settings.topic(topic)) for topic in (*OUTPUTS, *merged, "dead-letters")}
        # Results and offsets are committed together, so they belong together if the offsets have not changed.
        if before == _committed(offset_reader, settings) and not any(
            has_lag(offset_reader, settings, topology.JOIN_STAGE, settings.topic(topic)) for topic in merged
        ):
            break
        time.sleep(RETRY_S)
    else:
        raise CheckFailedError(
            f"the join of pipeline {settings.name} commits all the time: stop it, or wait until it has read its topics"
        )
    sources: Ranges = {}
    for side, offsets in before.items():
        begin = offset_reader.begin(settings.topic(side))
        sources[side] = {p: (first, max(first, offsets.get(p, first))) for p, first in begin.items()}
    ranges = sources | written
    if problems := list(_truncated(settings, ranges)):
        raise ConfigurationError(*problems)
    return ranges


def _reader(settings: PipelineSettings, side: Side) -> str:
    """Return the stage that reads the user's topic of a side."""
    return side.value if topology.REPARTITIONED.holds(settings) else topology.JOIN_STAGE


def _committed(offset_reader: OffsetReader, settings: PipelineSettings) -> dict[str, dict[int, int]]:
    return {
        side.value: committed_by_stage(offset_reader, settings, _reader(settings, side), settings.topic(side.value))
        for side in Side
    }


def _truncated(settings: PipelineSettings, ranges: Ranges) -> Iterator[str]:
    for topic, offsets in ranges.items():
        for partition, (first, _) in offsets.items():
            if first:
                yield (
                    f"partition {partition} of {settings.topic(topic)} begins at offset {first}: its first records "
                    "were deleted, so the join cannot be audited"
                )


def audit(settings: PipelineSettings, limit: int, out: Path | None, spark: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the records that the join has written with those of its topics, and return the report."""
    ranges = audit_ranges(OffsetReader(settings.kafka), settings)
    with spark_running("audit", dict(spark)) as session:
        from skewless.spark import join_job
        from skewless.spark.batch_job import local_uri

        folder = None if out is None else local_uri(out / "differences")
        report = join_job.compare(session, settings, ranges, first=limit, out=folder)
    offsets = {
        topic: {str(partition): list(span) for partition, span in partitions.items()}
        for topic, partitions in ranges.items()
    }
    report = {"pipeline": settings.name, "offsets": offsets, **report}
    if out is not None:
        (out / "audit.json").write_text(json.dumps(report, indent=2) + "\n")
    return report


def batch_text(report: Mapping[str, Any]) -> str:
    """Return the report of a batch as text."""
    results = (f"  {count:,} in {topic}" for topic, count in report["results_by_topic"].items())
    return "\n".join([*_records(report), f"{report['results']:,} results in {report['written_to']}", *results])


def audit_text(report: Mapping[str, Any]) -> str:
    """Return the report of an audit as text."""
    lines = [*_records(report), f"compared {report['compared']:,} records of the join"]
    lines += [f"  {count:,} in {topic}" for topic, count in report["compared_by_topic"].items()]
    lines += [f"  left out {count:,}: {reason}" for reason, count in report["left_out"].items()]
    lines += [f"{count:,} {kind}" for kind, count in report["differences_by_kind"].items()] or ["no differences"]
    for row in report["first_differences"]:
        times = f"expected {row['expected']} times, found {row['found']} times"
        lines.append(f"  {row['kind']}: {row['topic']} partition {row['partition']}: {row['value']}: {times}")
    return "\n".join(lines)


def _records(report: Mapping[str, Any]) -> list[str]:
    sides = ", ".join(f"{count:,} {side}" for side, count in report["records_by_side"].items())
    letters = (f"  {count:,} dead letters: {reason}" for reason, count in report["dead_letters_by_reason"].items())
    return [f"{report['records']:,} records ({sides})", *letters]
