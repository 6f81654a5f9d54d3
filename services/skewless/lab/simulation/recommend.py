"""Recommends a grouping and a number of workers from the measures of the candidates, with reasons as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from skewless.algorithms.grouping import LOCAL
from skewless.algorithms.local_buffer import OFF_RATIO

RATE_TOLERANCE = 0.95
"""If no grouping meets the demand, groupings with at least this fraction of the best rate are candidates."""
LOCAL_TUPLES = 20_000
"""Tuples of a source partition that the measured local aggregation reduces to rows at once."""
COST_TOLERANCE = 1.05
"""Groupings with at most this multiple of the lowest replication count as equally cheap; the fastest is chosen."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The tuple rate that the workers must sustain."""

    cost_ms: float
    """Work per tuple in a worker."""
    rate: float | None
    """Tuples per second; None: the observed rate of the topic."""
    headroom: float
    """Required capacity of the workers as a multiple of the rate."""
    user_specified: bool = True
    """Whether the user specified the rate; otherwise it is the observed rate of the topic."""
    commits_per_s: float = 2.0
    """Commits of a splitter per second."""
    partitions: int | None = None
    """Number of source partitions; None: unknown."""

    def of(self, observed: float | None, partitions: int) -> Demand:
        """Return the demand for a topic with the observed rate, if the user did not specify one."""
        demand = replace(self, partitions=partitions)
        return demand if self.rate is not None else replace(demand, rate=observed, user_specified=False)

    @property
    def local_tuples(self) -> float | None:
        """Tuples of a source partition in a commit at the required rate; None if it is unknown, or `LOCAL_TUPLES`."""
        if self.partitions is None or not self.required_rate:
            return None
        tuples = self.required_rate / self.commits_per_s / self.partitions
        return tuples if tuples < LOCAL_TUPLES else None

    @property
    def required_rate(self) -> float:
        """Tuples per second that the workers must be able to process; 0 if no rate is known."""
        return (self.rate or 0.0) * self.headroom

    def to_json(self) -> dict[str, Any]:
        """Return the demand as part of the plan's JSON."""
        demand = {"cost_ms": self.cost_ms, "rate": self.rate, "headroom": self.headroom}
        return {"demand": demand | {"rate_is_user_specified": self.user_specified, "wanted": self.required_rate}}


def recommend(candidates: Sequence[Mapping[str, Any]], demand: Demand) -> dict[str, Any]:
    """Choose the smallest number of workers that meets the demand, and for it the grouping with the least replication.

    Adds `max_rate` to the candidates: tuples per second at which their most loaded worker is always busy.
    """
    rated = [{**candidate, "max_rate": max_rate(candidate, demand)} for candidate in candidates]
    sufficient = [candidate for candidate in rated if candidate["max_rate"] >= demand.required_rate]
    pool = sufficient or rated
    # Rows that are hardly fewer than tuples do not pay for their aggregation, however small the load is.
    pool = [each for each in pool if each["grouping"] != LOCAL or rows_per_tuple(each, demand) <= OFF_RATIO] or pool
    if sufficient:
        workers = min(candidate["workers"] for candidate in pool)
        eligible = [candidate for candidate in pool if candidate["workers"] == workers]
    else:
        workers = max(candidate["workers"] for candidate in pool)
        largest = [candidate for candidate in pool if candidate["workers"] == workers]
        best_rate = max(candidate["max_rate"] for candidate in largest)
        eligible = [candidate for candidate in largest if candidate["max_rate"] >= RATE_TOLERANCE * best_rate]
    min_replication = min(candidate["replication_factor"] for candidate in eligible)
    cheapest = [
        candidate for candidate in eligible if candidate["replication_factor"] <= COST_TOLERANCE * min_replication
    ]
    chosen = max(cheapest, key=lambda candidate: (candidate["max_rate"], -candidate["router_ns_per_tuple"]))
    return {
        "recommendation": {
            "grouping": chosen["grouping"],
            "workers": workers,
            "sufficient": bool(sufficient),
            "reasons": _reasons(chosen, rated, demand, sufficient=bool(sufficient)),
        },
        "candidates": rated,
    }


def max_rate(candidate: Mapping[str, Any], demand: Demand) -> float:
    """Return the tuples per second that the workers can process. The most loaded worker is the limit.

    A row of several tuples costs as much as one tuple.
    """
    rows_per_s = candidate["workers"] / candidate["max_over_avg"] * 1000 / demand.cost_ms
    return float(rows_per_s / rows_per_tuple(candidate, demand))


def rows_per_tuple(candidate: Mapping[str, Any], demand: Demand | None = None) -> float:
    """Return the rows to which local aggregation reduces a tuple; 1 without it.

    With a demand whose commits have fewer than `LOCAL_TUPLES`, it is an upper bound: they have at most as many rows.
    """
    measured = float(candidate["rows"] / max(1, candidate["tuples"])) or 1.0
    tuples = None if demand is None or candidate["grouping"] != LOCAL else demand.local_tuples
    return measured if tuples is None else min(1.0, measured * LOCAL_TUPLES / tuples)


_COMPARED = {"key", "shuffle", "partial_key"}
"""Well-known groupings, which the recommendation is compared with."""


def _reasons(
    chosen: Mapping[str, Any], rated: Sequence[Mapping[str, Any]], demand: Demand, *, sufficient: bool
) -> list[str]:
    same_workers = [candidate for candidate in rated if candidate["workers"] == chosen["workers"]]
    compared = [other for other in same_workers if other["grouping"] in _COMPARED - {chosen["grouping"]}]
    return [
        _rate_text(demand),
        _capacity_text(chosen, rated, demand, sufficient=sufficient),
        *(_comparison_text(chosen, other) for other in compared),
        *(_local_text(other, demand) for other in same_workers if other["grouping"] == LOCAL),
        _replication_text(chosen),
    ]


def _rate_text(demand: Demand) -> str:
    if demand.rate is None:
        return "Nearly all tuples have the same time, so the rate is unknown. Specify the rate in tuples per second."
    source = "as specified" if demand.user_specified else "the topic's mean rate, by event time"
    return (
        f"Required capacity: {_number(demand.required_rate)} tuples/s, which is {_number(demand.rate)} ({source}) "
        f"with a headroom of {demand.headroom:g}. A tuple costs {demand.cost_ms:g} ms of a worker."
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _capacity_text(
    chosen: Mapping[str, Any], rated: Sequence[Mapping[str, Any]], demand: Demand, *, sufficient: bool
) -> str:
    capacity = (
        f"With {chosen['workers']} workers {chosen['grouping']} sustains {chosen['max_rate']:,.0f} tuples/s: the most "
        f"loaded worker has {chosen['max_over_avg']:.2f} x the average"
    )
    if not sufficient:
        min_workers = ceil(demand.required_rate * demand.cost_ms / 1000)
        return (
            f"{capacity}. No candidate meets the demand: even a perfect load needs {min_workers:,} workers; try more."
        )
    # Local aggregation that does not pay may be fast enough with fewer workers.
    slow = [each for each in rated if each["workers"] < chosen["workers"] and each["max_rate"] < demand.required_rate]
    if not slow:
        return f"{capacity}. No smaller number of workers was compared."
    best = max(slow, key=lambda candidate: candidate["max_rate"])
    return (
        f"{capacity}. With fewer workers, the best candidate is {best['grouping']} on {best['workers']} with "
        f"{best['max_rate']:,.0f} tuples/s, which is too low."
    )


def _comparison_text(chosen: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    share = other["max_rate"] / chosen["max_rate"]
    return (
        f"{other['grouping']} would sustain {f'{share:.0%}' if share >= 0.01 else 'less than 1%'} of that rate, with "
        f"{other['replication_factor']:.2f} workers per key."
    )


def _local_text(local: Mapping[str, Any], demand: Demand) -> str:
    ratio = rows_per_tuple(local)
    rows = f"{ratio:.2f}" if ratio >= 0.01 else "less than 0.01"
    if demand.local_tuples is not None and rows_per_tuple(local, demand) > OFF_RATIO >= ratio:
        return (
            f"Local aggregation (splitter.local) would send {rows} rows per tuple with 20,000 tuples of a "
            f"source partition per commit. At this rate a commit has {_number(demand.local_tuples)}, and so more rows "
            "per tuple: it is not counted on."
        )
    if ratio > OFF_RATIO:
        return f"Local aggregation pays only if all else is too slow: it would send {rows} rows per tuple."
    return (
        f"Local aggregation (splitter.local) would send {rows} rows per tuple, with 20,000 tuples of a source "
        "partition per commit; more tuples per commit give fewer rows. That is fewer bytes. It saves CPU time "
        "where a row is much work, and otherwise costs some below 25,000 tuples of a partition per commit."
    )


def _replication_text(chosen: Mapping[str, Any]) -> str:
    return (
        f"Cost: {chosen['replication_factor']:.2f} workers per key (at most {chosen['replication_max']}), where an "
        f"even load needs {chosen['replication_bound']:.2f}; {chosen['aggregation_cost']:,.0f} partial results per "
        f"window; {chosen['state_bytes'] / 1000:,.0f} kB of state in a router."
    )
