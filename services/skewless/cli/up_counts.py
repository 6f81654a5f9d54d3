"""Warnings of `skewless up` about the records that it processes, and their counts at its end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import click

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import SkewlessError
from skewless.kafka.broker_watch import BrokerWatch
from skewless.kafka.consumer.offsets import OffsetReader, uncommitted_records
from skewless.operations.data_quality import (
    MAX_LATE_SHARE,
    QUALITY_TOPICS,
    cause_without_tuples,
    data_quality,
    expired_line,
    warnings,
)
from skewless.operations.run_counts import RunCounter, RunCounts, check_accepted

INTERVAL_S = 10.0
"""Time between two looks at the records of a run."""
PERIOD_MS = 300_000
"""Period of the records of one look."""


@contextlib.contextmanager
def warning_of_rejected_records(settings: PipelineSettings, brokers: BrokerWatch) -> Iterator[None]:
    """Print a warning when the share of late tuples or invalid records becomes too large, until the end of the block.

    The records are read in another thread, because a broker that is away may not delay restarts of processes.
    """
    ended = threading.Event()
    threading.Thread(target=_watch, args=(settings, brokers, ended), name="rejected records", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(settings: PipelineSettings, brokers: BrokerWatch, ended: threading.Event) -> None:
    needed = {row.name for row in topology.needed_topics(settings)}
    topics = {name: settings.topic(name) for name in QUALITY_TOPICS if name in needed}
    started, previous = time.monotonic(), dict[str, str]()
    while not ended.wait(INTERVAL_S):
        if brokers.is_away:  # a new client would report it again
            continue
        with contextlib.suppress(SkewlessError):
            elapsed_ms = round(1000 * (time.monotonic() - started))
            since_ms = time.time_ns() // 1_000_000 - min(PERIOD_MS, elapsed_ms)
            # `brokers` reports a broker that does not answer.
            offsets = OffsetReader(settings.kafka, is_quiet=True)
            quality = data_quality(offsets, topics, settings.sides, since_ms)
            found = warnings(quality, settings, MAX_LATE_SHARE)
            for kind in found.keys() - previous.keys():
                if not ended.is_set():
                    click.secho(f"warning: {found[kind]}", fg="yellow")
            previous = found


def print_counts(counter: RunCounter, settings: PipelineSettings, *, drain: bool) -> None:
    """Print what a run has processed.

    Raises CheckFailedError if it was bounded, and each of its records is invalid or late.
    """
    try:
        counts = counter.counts(exact=drain)
    except SkewlessError as error:
        click.echo(f"the records of this run are not counted: {error}")
        return
    click.echo(counts_line(counts, settings))
    if counts.reasons.counts:
        click.echo(f"invalid records: {counts.reasons}; `skewless dead-letters list` has all reasons")
        for remedy in counts.reasons.remedies(settings):
            click.echo(f"  {remedy}")
    if expired := counts.reasons.expired:
        click.secho(f"warning: {expired_line(expired, settings, is_part=not counts.invalid.is_exact)}", fg="yellow")
    if drain:
        for topic, offsets in counts.uncommitted.items():
            text = f"topic {topic} has {uncommitted_records(offsets)}: they are in no result until these have ended"
            click.secho(f"warning: {text}", fg="yellow")
        if counts.is_all_filtered:
            missing = "has a partner in the join"
            if not counts.is_none_paired:
                missing = f"has a tuple, because of {cause_without_tuples(settings)}"
            others = f"the other {counts.others_text}" if counts.invalid.records else counts.records_text
            click.secho(f"warning: none of {others} {missing}", fg="yellow")
        check_accepted(counts)


def counts_line(counts: RunCounts, settings: PipelineSettings) -> str:
    """Return the counts of a run as a line."""
    s = "" if counts.results.records == 1 else "s"
    of_aggregation = f"update{s} of results" if settings.aggregator.emit == "updates" else f"result{s}"
    results = f"joined record{s}" if settings.source is None else of_aggregation
    return f"{counts.records_text}: {counts.results} {results}, {counts.late} late, {counts.invalid} invalid"
