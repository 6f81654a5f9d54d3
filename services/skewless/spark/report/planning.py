"""The report of `skewless plan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skewless.spark.report.charts import lines
from skewless.spark.report.page import Figure, Section, definitions, folded, page, paragraph, table

Candidate = Mapping[str, Any]


def worst_window(max_over_avg: float | None) -> str:
    """Write the max/avg of the worst window; - when no window has enough tuples."""
    return "-" if max_over_avg is None else f"{max_over_avg:.3f}"


COLUMNS: Mapping[str, Callable[[Candidate], str]] = {
    "W": lambda each: f"{each['workers']}",
    "max rate, tuples/s": lambda each: f"{each['max_rate']:,.0f}",
    "max/avg": lambda each: f"{each['max_over_avg']:.3f}",
    "worst window": lambda each: worst_window(each["worst_window_max_over_avg"]),
    "imbalance I/m": lambda each: f"{each['imbalance']:.1e}",
    "workers per key": lambda each: f"{each['replication']:.3f}",
    "(bound)": lambda each: f"{each['replication_bound']:.3f}",
    "most": lambda each: f"{each['replication_max']}",
    "in a window": lambda each: f"{each['window_replication']:.3f}",
    "partials per window": lambda each: f"{each['aggregation_cost']:,.0f}",
    "pairs": lambda each: f"{each['pairs']:,}",
    "router, ns/tuple": lambda each: f"{each['router_ns_per_tuple']:.0f}",
    "router, bytes": lambda each: f"{each['state_bytes']:,}",
}

NAMES = {
    "max rate": "tuples per second at which the fullest worker is busy all the time: W / (max/avg x cost per tuple)",
    "max/avg": "W x share of the fullest worker, over everything that was read",
    "worst window": "max/avg of the worst window with at least 100 tuples per worker; - when there is none",
    "imbalance I/m": "(fullest worker - average) / tuples",
    "workers per key": "replication: mean number of distinct workers per key; (bound): the least for perfect balance",
    "partials per window": "(key, worker) pairs of a window: the fewest partial results that the aggregator gets",
    "pairs": "(key, worker) pairs that were ever used: memory of all workers",
    "router": "time of a decision, and size of what a router remembers, on the machine that ran this",
}


def report(facts: Mapping[str, Any]) -> str:
    """Write the report of a plan as HTML."""
    chosen, stream = facts["recommendation"], facts["stream"]
    candidates: Sequence[Candidate] = facts["candidates"]
    reasons = "".join(map(paragraph, chosen["reasons"]))
    answer = f"{chosen['grouping']} on {chosen['workers']} workers"
    lead = (
        paragraph(
            f"{stream['tuples']:,} tuples of {stream['keys']:,} keys, the hottest with {stream['p1']:.2%}; every "
            f"grouping decided about each of them as it would have in {candidates[0]['routers']} router(s)."
        )
        + f'<div class="call"><p><strong>{paragraph(answer)[3:-4]}</strong></p>{reasons}</div>'
    )
    wanted = ("wanted", facts["demand"]["wanted"]) if facts["demand"]["rate"] is not None else None
    return page(
        f"Skewless: a plan for topic {facts['topic']}",
        lead,
        [
            Section("What the workers can do", _wanted(facts), [_over_workers(facts, "max_rate", "tuples/s", wanted)]),
            Section(
                "How even the load is, and its price",
                "",
                [
                    _over_workers(facts, "max_over_avg", "max/avg"),
                    _over_workers(facts, "replication", "workers per key"),
                ],
            ),
            Section("All of them", _all(candidates) + folded("What the measures mean", definitions(NAMES))),
            Section("What was read", _read(facts)),
        ],
    )


def _wanted(facts: Mapping[str, Any]) -> str:
    demand = facts["demand"]
    return paragraph(
        f"At {demand['cost_ms']:g} ms per tuple in a worker; {demand['wanted']:,.0f} tuples/s are wanted."
        if demand["rate"] is not None
        else f"At {demand['cost_ms']:g} ms per tuple in a worker."
    )


def _over_workers(facts: Mapping[str, Any], measure: str, title: str, bound: tuple[str, float] | None = None) -> Figure:
    series: dict[str, list[tuple[float, float | None]]] = {}
    for each in facts["candidates"]:
        series.setdefault(each["grouping"], []).append((each["workers"], each[measure]))
    return lines(series, title, x_title="W", bound=bound)


def _all(candidates: Sequence[Candidate]) -> str:
    rows = [[each["grouping"], *(text(each) for text in COLUMNS.values())] for each in candidates]
    return table(["grouping", *COLUMNS], rows)


def _read(facts: Mapping[str, Any]) -> str:
    stream = facts["stream"]
    rows = [[partition, f"{first:,}", f"{end:,}"] for partition, (first, end) in facts["offsets"].items()]
    judged = f"{stream['late']:,} late tuples and {stream['bad']:,} records that cannot be read are left out."
    return paragraph(judged) + folded("Offsets", table(["partition", "from", "to"], rows))
