"""The card of a pipeline on the page of `skewless top --web`: the views of `skewless top`, and its latest results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from skewless.cli.plain_text import duration, iso, printable, value_text
from skewless.cli.status_text import STAGE_COLUMNS, notes, recent_counts, stage_cells
from skewless.cli.top_view import COLUMNS, key_count, key_rows, rate
from skewless.operations.live_page.cards import Card, CardTable, bars
from skewless.operations.results.selection import ResultRecord
from skewless.operations.status import PipelineStatus, largest_lag_s, processes
from skewless.times import instant_text


def card(report: PipelineStatus, results: Sequence[ResultRecord], aggregates: Sequence[str]) -> Card:
    """Return the pipeline as a card of the page. `results` are the latest ones, with these aggregates."""
    load = report.load
    stages = [
        [stage.name, ", ".join(processes(stage, report.pipeline)) or "-", *stage_cells(stage, report)]
        for stage in report.stages
    ]
    tables = [CardTable("Stages", ("stage", "processes", *STAGE_COLUMNS), stages)]
    if results:
        columns = ("key", "window", *aggregates)
        tables.insert(0, CardTable("Latest results", columns, [_result(result, aggregates) for result in results]))
    if load and load.top_keys:
        keys = [[str(cell) for cell in row] for row in key_rows(load, by_load=True)]
        tables.insert(0, CardTable("Hot keys in the last tick", COLUMNS["keys"], keys))
    return Card(
        name=report.pipeline,
        state=report.state,
        figures=list(_figures(report)),
        bars=bars(load.rows_by_worker) if load else (),
        tables=tables,
        notes=list(_notes(report)),
    )


def _figures(report: PipelineStatus) -> Iterator[tuple[str, str]]:
    load = report.load
    if load:
        if report.state != "finished":
            yield "tuples/s", f"{rate(load):,.1f}"
        yield "most loaded worker / average", f"{load.max_over_avg:.2f}"
        yield "grouping", load.grouping
        yield "keys in the tick", key_count(load)
        yield "tick", f"{iso(load.tick_start)}, {duration((load.tick_end - load.tick_start) / 1000)}"
    yield "lag", duration(largest_lag_s(report))
    if report.open_windows is not None:
        yield "open windows", f"{report.open_windows:,}"
    yield "read at", iso(report.time_ms)


def _result(result: ResultRecord, aggregates: Sequence[str]) -> list[str]:
    return [
        printable(str(result["key"])),
        instant_text(result["window_start"]),
        *(_value(result.get(name)) for name in aggregates),
    ]


def _value(value: Any) -> str:
    """Return the value of an aggregate as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(value_text(value))


def _notes(report: PipelineStatus) -> Iterator[tuple[str, str]]:
    if report.load is None:
        yield "info", "no tick was emitted yet"
    if report.recent:
        yield "info", f"last {duration(report.recent_s)}: {recent_counts(report)}"
    yield from notes(report)
