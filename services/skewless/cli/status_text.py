"""Text of the state of a pipeline, for `skewless status` and `skewless top`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.cli.plain_text import counted, duration, iso, printable
from skewless.operations.status import PipelineStatus, StageStatus, behind_s, lag_s

LISTED_WORKERS = 16
"""Workers that are listed at most."""
BAR_WIDTH = 30
STAGE_COLUMNS = ("lag records", "lag", "watermark", "behind")
"""Headings of `stage_cells`."""


def recent_counts(report: PipelineStatus) -> str:
    """Return the numbers of recent records that are in no result."""
    units = {"late": "late tuple", "join-late": "late record", "dead-letters": "dead letter"}
    return ", ".join(counted(report.recent[name], unit) for name, unit in units.items() if name in report.recent)


def notes(report: PipelineStatus) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of what is wrong or waits."""
    yield from (("problem", problem) for problem in report.problems)
    yield from (("warning", warning) for warning in report.warnings)
    yield from (("waiting", wait) for wait in report.waits)


def stage_cells(stage: StageStatus, report: PipelineStatus) -> tuple[str, ...]:
    """Return the lag and the event time of a stage, under STAGE_COLUMNS."""
    age_s = lag_s(stage, report.time_ms)
    lag = duration(age_s) if stage.lag_records and age_s is not None else "-"
    return f"{stage.lag_records:,}", lag, _watermark(stage), _behind(stage, report)


def _watermark(stage: StageStatus) -> str:
    """Return the watermark of a stage; `-` if it has none, `ended` after a bounded run."""
    time_ms = stage.event_time.watermark
    if time_ms is None:
        return "-"
    return "ended" if time_ms == MAX_WATERMARK else iso(time_ms)


def _behind(stage: StageStatus, report: PipelineStatus) -> str:
    """Return the watermark lag of a stage; `idle` if all of its partitions are idle, `-` if it is unknown."""
    lag_s = behind_s(stage, report.newest_event_ms)
    return "idle" if stage.event_time.idle else "-" if lag_s is None else duration(lag_s)


def text(report: PipelineStatus) -> str:
    """Return the state of a pipeline as `skewless status` prints it."""
    return "\n".join(_lines(report))


def _lines(report: PipelineStatus) -> Iterator[str]:
    engine = ", on Spark" if report.engine == "spark" else ""
    yield f"pipeline {report.pipeline}: {report.state}{engine}, {iso(report.time_ms)}"
    yield ""
    rows: list[tuple[str, ...]] = [("stage", "processes", *STAGE_COLUMNS)]
    rows += [(stage.name, f"{len(stage.group.members):,}", *stage_cells(stage, report)) for stage in report.stages]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *cells]).rstrip()
    yield ""
    aggregator = report.closing
    if aggregator is not None:  # otherwise the pipeline only joins
        yield f"windows  {_windows(aggregator, report.open_windows)}"
    if report.recent:
        hint = ", see `skewless dead-letters list`" if report.recent.get("dead-letters") else ""
        yield f"last {duration(report.recent_s)}  {recent_counts(report)}{hint}"
    if aggregator is not None:
        yield from _load(report)
    if report.hot_keys:
        listed = (
            f"{printable(hot.key[:40])} ({counted(hot.tuples, 'tuple')}, {counted(hot.workers, 'worker')})"
            for hot in report.hot_keys
        )
        yield f"hot keys {', '.join(listed)}"
    yield from (f"waiting  {wait}" for wait in report.waits)
    yield from (click.style(f"warning  {warning}", fg="yellow") for warning in report.warnings)
    yield from (f"problem  {problem}" for problem in report.problems)


def _windows(aggregator: StageStatus, open_windows: int | None) -> str:
    if _watermark(aggregator) == "ended":
        return "all are closed"
    if aggregator.closed_until is None:
        return "none is closed"
    opened = "an unknown number" if open_windows is None else f"{open_windows:,}"
    return f"closed up to {iso(aggregator.closed_until)}, {opened} open"


def _load(report: PipelineStatus) -> Iterator[str]:
    load = report.load
    if load is None or not load.tuples:
        yield "load     no tick was emitted"
        return
    yield (
        f"load     {counted(load.tuples, 'tuple')} from {iso(load.tick_start)} to {iso(load.tick_end)}, grouping "
        f"{load.grouping}, max/avg {load.max_over_avg:.2f}"
    )
    if load.reduced:
        yield "  only the keys with most tuples are counted: raise observer.max_state_bytes and the memory to count all"
    most = max(load.rows_by_worker)
    for worker, rows in enumerate(load.rows_by_worker[:LISTED_WORKERS]):
        bar = "█" * round(BAR_WIDTH * rows / most)
        yield f"  worker {worker:<4} {rows / load.rows:>6.1%} {bar}".rstrip()
    if (others := len(load.rows_by_worker) - LISTED_WORKERS) > 0:
        yield f"  and {others} others, see --json"
    for key in load.top_keys[:3]:
        name = printable(key.key[:40])
        yield f"  key {name}: {key.tuples / load.tuples:.1%}, on {counted(key.workers, 'worker')}"
