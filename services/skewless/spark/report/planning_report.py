"""Renders the report of `skewless plan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skewless.lab.simulation.recommend import rows_per_tuple
from skewless.spark.report.charts import over_workers
from skewless.spark.report.html_page import render

Candidate = Mapping[str, Any]


def worst_window(max_over_avg: float | None) -> str:
    """Return the max/avg of the worst window as text; - if no window has enough tuples."""
    return "-" if max_over_avg is None else f"{max_over_avg:.3f}"


COLUMNS: Mapping[str, Callable[[Candidate], str]] = {
    "W": lambda candidate: f"{candidate['workers']}",
    "max rate, tuples/s": lambda candidate: f"{candidate['max_rate']:,.0f}",
    "rows per tuple": lambda candidate: f"{rows_per_tuple(candidate):.3f}",
    "max/avg": lambda candidate: f"{candidate['max_over_avg']:.3f}",
    "worst window": lambda candidate: worst_window(candidate["worst_window_max_over_avg"]),
    "imbalance I/m": lambda candidate: f"{candidate['imbalance']:.1e}",
    "workers per key": lambda candidate: f"{candidate['replication_factor']:.3f}",
    "(bound)": lambda candidate: f"{candidate['replication_bound']:.3f}",
    "maximum": lambda candidate: f"{candidate['replication_max']}",
    "in a window": lambda candidate: f"{candidate['window_replication']:.3f}",
    "partials per window": lambda candidate: f"{candidate['aggregation_cost']:,.0f}",
    "pairs": lambda candidate: f"{candidate['pairs']:,}",
    "router, ns/tuple": lambda candidate: f"{candidate['router_ns_per_tuple']:.0f}",
    "router, bytes": lambda candidate: f"{candidate['state_bytes']:,}",
}

NAMES = {
    "max rate": "tuples per second at which the most loaded worker is always busy: "
    "W / (max/avg x cost per row x rows per tuple)",
    "rows per tuple": "rows to which local aggregation reduces a tuple; 1 without it",
    "max/avg": "load of the most loaded worker / average load, over all rows",
    "worst window": "max/avg of the worst window with at least 100 rows per worker; - if there is none",
    "imbalance I/m": "(most loaded worker - average) / rows",
    "workers per key": "mean number of distinct workers per key; (bound): the minimum for perfect balance",
    "partials per window": "(key, worker) pairs of a window: the minimum number of partial results for the aggregator",
    "pairs": "(key, worker) pairs that were used: memory of all workers",
    "router": "time per routing decision on the machine that ran this, and size of a router's state",
}


def report(plan: Mapping[str, Any]) -> str:
    """Return the report of a plan as HTML."""
    demand = plan["demand"]
    candidates: Sequence[Candidate] = plan["candidates"]
    required = ("required", demand["wanted"]) if demand["rate"] is not None else None
    figures = {
        "capacity": [over_workers(candidates, "max_rate", "tuples/s", required)],
        "imbalance": [
            over_workers(candidates, "max_over_avg", "max/avg"),
            over_workers(candidates, "replication_factor", "workers per key"),
        ],
    }
    return render(
        "plan.html.j2",
        figures,
        topic=plan["topic"],
        stream=plan["stream"],
        demand=demand,
        routers=candidates[0]["routers"],
        recommendation=plan["recommendation"],
        candidates={"head": ["grouping", *COLUMNS], "rows": _candidate_rows(candidates)},
        names=NAMES,
        offsets=[[partition, f"{first:,}", f"{end:,}"] for partition, (first, end) in plan["offsets"].items()],
    )


def _candidate_rows(candidates: Sequence[Candidate]) -> list[list[str]]:
    return [[candidate["grouping"], *(text(candidate) for text in COLUMNS.values())] for candidate in candidates]
