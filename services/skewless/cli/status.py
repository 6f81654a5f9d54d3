"""Implements `skewless status`: shows the state of a pipeline from its topics and consumer groups."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from skewless.cli.counts import counted
from skewless.cli.options import Duration, load_settings, pipeline_file
from skewless.errors import CheckFailedError, UnreachableError

if TYPE_CHECKING:
    from skewless.operations.status import PipelineStatus, StageStatus

INTERVAL_S = 2.0
LISTED_WORKERS = 16
"""Workers that are listed at most."""
BAR_WIDTH = 30


@click.command()
@pipeline_file
@click.option("--watch", is_flag=True, help="Repeat every 2 seconds until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, or one per line with --watch.")
@click.option(
    "--recent",
    type=Duration(),
    default="5m",
    show_default=True,
    metavar="TIME",
    help="Period in which late tuples and dead letters are counted.",
)
@click.option(
    "--max-lag",
    type=Duration(),
    metavar="TIME",
    help="Age of an unprocessed record, by its Kafka timestamp, above which it is a problem.  [default: none]",
)
def status(file: Path | None, *, watch: bool, as_json: bool, recent: float, max_lag: float | None) -> None:
    """Show each stage of a pipeline with its processes, lag and watermark, the load of the workers, and problems.

    Needs only the topics and consumer groups, so it works wherever the stages run. Values are those of the last commit.
    Exits with 1 if there are problems: a stage without a process, deleted records, a missing topic, a lag above
    --max-lag.

    \b
    Examples:
      skewless status -f pipeline.yaml
      skewless status -f pipeline.yaml --watch
      skewless status -f pipeline.yaml --max-lag 5m --json
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.operations.status import status as status_of

    def read() -> PipelineStatus:
        return status_of(settings, time.time_ns() // 1_000_000, recent_s=recent, max_lag_s=max_lag)

    text = _json if as_json else _text
    if watch:
        _watch(read, text, on_terminal=sys.stdout.isatty() and not as_json)
    report = read()
    click.echo(text(report))
    if report.problems:
        raise CheckFailedError(f"pipeline {settings.name}: {counted(len(report.problems), 'problem')}")


def _watch(read: Callable[[], PipelineStatus], text: Callable[[PipelineStatus], str], *, on_terminal: bool) -> NoReturn:
    """Print the state again and again: in place on a terminal. Waits while no broker answers."""
    while True:
        try:
            shown = text(read())
        except UnreachableError as error:
            click.echo(f"error: {error}", err=True)
        else:
            if on_terminal:
                click.clear()
            click.echo(shown)
        time.sleep(INTERVAL_S)


def _json(report: PipelineStatus) -> str:
    from skewless.operations.status import as_json

    return json.dumps(as_json(report))


def _text(report: PipelineStatus) -> str:
    return "\n".join(_lines(report))


def _lines(report: PipelineStatus) -> Iterator[str]:
    yield f"pipeline {report.pipeline}: {report.state}, {_iso(report.time_ms)}"
    yield ""
    rows: list[tuple[str, ...]] = [("stage", "processes", "lag records", "lag", "watermark", "behind")]
    rows += [_row(stage, report) for stage in report.stages]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *cells]).rstrip()
    yield ""
    aggregator = next((stage for stage in report.stages if stage.name == "aggregator"), None)
    if aggregator is not None:  # otherwise the pipeline only joins
        yield f"windows  {_windows(aggregator, report.open_windows)}"
    late, dead = report.recent.get("late", 0), report.recent.get("dead-letters", 0)
    yield (
        f"last {_duration(report.recent_s)}  {counted(late, 'late tuple')}, {counted(dead, 'dead letter')}"
        + (", see `skewless dead-letters list`" if dead else "")
    )
    if aggregator is not None:
        yield from _load(report)
    yield from (f"waiting  {wait}" for wait in report.waits)
    yield from (f"problem  {problem}" for problem in report.problems)


def _row(stage: StageStatus, report: PipelineStatus) -> tuple[str, ...]:
    from skewless.operations.status import behind_s, lag_s

    state, behind = stage.event_time, behind_s(stage, report.newest_event_ms)
    return (
        stage.name,
        f"{len(stage.group.members):,}",
        f"{stage.lag_records:,}",
        _duration(lag_s(stage, report.time_ms)) if stage.lag_records else "-",
        _watermark(stage),
        "idle" if state.idle else "-" if behind is None else _duration(behind),
    )


def _watermark(stage: StageStatus) -> str:
    from skewless.algorithms.watermark import MAX_WATERMARK

    watermark = stage.event_time.watermark
    if watermark is None:
        return "-"
    return "ended" if watermark == MAX_WATERMARK else _iso(watermark)


def _windows(aggregator: StageStatus, open_windows: int | None) -> str:
    if aggregator.closed_until is None:
        return "none is closed"
    if _watermark(aggregator) == "ended":
        return "all are closed"
    opened = "an unknown number" if open_windows is None else f"{open_windows:,}"
    return f"closed up to {_iso(aggregator.closed_until)}, {opened} open"


def _load(report: PipelineStatus) -> Iterator[str]:
    load = report.load
    if load is None or not load.tuples:
        yield "load     no tick was emitted"
        return
    yield (
        f"load     {counted(load.tuples, 'tuple')} from {_iso(load.tick_start)} to {_iso(load.tick_end)}, grouping "
        f"{load.grouping}, max/avg {load.max_over_avg:.2f}"
    )
    most = max(load.tuples_by_worker)
    for worker, tuples in enumerate(load.tuples_by_worker[:LISTED_WORKERS]):
        bar = "█" * round(BAR_WIDTH * tuples / most)
        yield f"  worker {worker:<4} {tuples / load.tuples:>6.1%} {bar}".rstrip()
    if (others := len(load.tuples_by_worker) - LISTED_WORKERS) > 0:
        yield f"  and {others} others, see --json"
    for key in load.top_keys[:3]:
        name = "".join(letter if letter.isprintable() else "?" for letter in key.key[:40])
        yield f"  key {name}: {key.tuples / load.tuples:.1%}, on {counted(key.workers, 'worker')}"


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:,.3g} {unit}"
    return f"{seconds:.3g} s"
