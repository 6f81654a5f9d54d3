"""Table of the results of `skewless simulate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skewless.cli.wide_console import plain_table, wide_console

ROWS = "rows/\ntuple"
BOUND = "(bound)"
"""With local aggregation the first column is shown instead of the second one, which is the bound for tuples."""
COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "grouping": lambda run: str(run["grouping"]),
    "W": lambda run: f"{run['workers']}",
    ROWS: lambda run: f"{run['rows'] / max(1, run['tuples']):.3f}",
    "I/m": lambda run: f"{run['imbalance']:.1e}",
    "max/avg": lambda run: f"{run['max_over_avg']:.3f}",
    "worst\nwindow": lambda run: _or_dash(run["worst_window_max_over_avg"]),
    "repli-\ncation": lambda run: f"{run['replication_factor']:.3f}",
    BOUND: lambda run: f"{run['replication_bound']:.3f}",
    "in a\nwindow": lambda run: f"{run['window_replication']:.3f}",
    "partials\n/window": lambda run: f"{run['aggregation_cost']:,.0f}",
    "ns/\ntuple": lambda run: f"{run['router_ns_per_tuple']:.0f}",
    "state,\nbytes": lambda run: f"{run['state_bytes']:,}",
}
NOTES = """\
I/m: (most loaded worker - average) / tuples. max/avg: most loaded worker / average, over all tuples and in the worst
window with at least 100 tuples per worker. replication: workers per key. (bound): minimum replication for perfect
balance. With local aggregation the load is that of rows. ns/tuple: time of a router's decision. state: size of a
router's snapshot. --json prints all measures."""


def _or_dash(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def show(results: list[dict[str, Any]]) -> None:
    """Print a description of the stream, and a table with one row per run."""
    console, first = wide_console(), results[0]
    routers = "1 router" if first["routers"] == 1 else f"{first['routers']} routers"
    stream = f"{first['tuples']:,} tuples, {first['keys']:,} keys, the hottest has {first['p1']:.2%}"
    console.print(f"{stream}; {routers}, windows of {first['window_s']:g} s", soft_wrap=True)
    columns = dict(COLUMNS)
    is_local = any(run["rows"] != run["tuples"] for run in results)
    del columns[BOUND if is_local else ROWS]
    table = plain_table(list(columns), gap=1)
    for run in results:
        table.add_row(*(column(run) for column in columns.values()))
    console.print(table)
    console.print(NOTES, soft_wrap=True)
