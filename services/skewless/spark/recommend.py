"""From measures of candidates to a recommendation, with its reason in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

ENOUGH = 0.95
"""Where no grouping bears the demand, those whose rate is at least this part of the best one's come into question."""
CHEAP = 1.05
"""Groupings with at most this many times the least replication count as equally cheap: the fastest is taken."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What workers have to bear."""

    cost_ms: float
    """Work per tuple in a worker."""
    rate: float | None
    """Tuples per second; None: as many as the topic has had."""
    headroom: float
    """By how much more than the rate they should bear."""
    told: bool = True
    """Whether the rate was told, not taken from the topic."""

    def of(self, observed: float | None) -> Demand:
        """Take the topic's own rate where none was told."""
        return self if self.rate is not None else replace(self, rate=observed, told=False)

    @property
    def wanted(self) -> float:
        """Tuples per second that workers must be able to do; 0 where no rate is known."""
        return (self.rate or 0.0) * self.headroom

    def facts(self) -> dict[str, Any]:
        """Tell what was asked for."""
        names = {"cost_ms": self.cost_ms, "rate": self.rate, "headroom": self.headroom, "rate_told": self.told}
        return {"demand": names | {"wanted": self.wanted}}


def recommend(candidates: Sequence[Mapping[str, Any]], demand: Demand) -> dict[str, Any]:
    """Choose the fewest workers that bear the demand, and with these the cheapest grouping that does, by replication.

    Candidates get `max_rate`, tuples per second at which their fullest worker is busy all the time.
    """
    rated = [{**each, "max_rate": max_rate(each, demand.cost_ms)} for each in candidates]
    able = [each for each in rated if each["max_rate"] >= demand.wanted]
    if able:
        workers = min(each["workers"] for each in able)
        fit = [each for each in able if each["workers"] == workers]
    else:
        workers = max(each["workers"] for each in rated)
        most = [each for each in rated if each["workers"] == workers]
        fit = [each for each in most if each["max_rate"] >= ENOUGH * max(each["max_rate"] for each in most)]
    least = min(each["replication"] for each in fit)
    cheap = [each for each in fit if each["replication"] <= CHEAP * least]
    chosen = max(cheap, key=lambda each: (each["max_rate"], -each["router_ns_per_tuple"]))
    return {
        "recommendation": {
            "grouping": chosen["grouping"],
            "workers": workers,
            "sufficient": bool(able),
            "reasons": _reasons(chosen, rated, demand, sufficient=bool(able)),
        },
        "candidates": rated,
    }


def max_rate(candidate: Mapping[str, Any], cost_ms: float) -> float:
    """Tuples per second that the workers can do, the fullest being the limit."""
    return float(candidate["workers"] / candidate["max_over_avg"] * 1000 / cost_ms)


def _reasons(
    chosen: Mapping[str, Any], rated: Sequence[Mapping[str, Any]], demand: Demand, *, sufficient: bool
) -> list[str]:
    here = [each for each in rated if each["workers"] == chosen["workers"]]
    return [
        _need(demand),
        _ability(chosen, rated, demand, sufficient=sufficient),
        *(_against(chosen, other) for other in here if other["grouping"] in _COMPARED - {chosen["grouping"]}),
        _price(chosen),
    ]


def _price(chosen: Mapping[str, Any]) -> str:
    return (
        f"Its price: {chosen['replication']:.2f} workers per key (at most {chosen['replication_max']}), where an even "
        f"load needs {chosen['replication_bound']:.2f}; {chosen['aggregation_cost']:,.0f} partial results per window; "
        f"{chosen['state_bytes'] / 1000:,.0f} kB of state in a router."
    )


_COMPARED = {"key", "shuffle", "partial_key"}
"""What everybody knows, and compares with."""


def _need(demand: Demand) -> str:
    if demand.rate is None:
        return "No rate is known: the tuples' times do not differ. --rate says how many tuples per second there are."
    source = "as told" if demand.told else "the topic's own mean rate, by event time"
    return (
        f"The workers must bear {demand.wanted:,.0f} tuples/s: {demand.rate:,.0f} ({source}) "
        f"with a headroom of {demand.headroom:g}; a tuple costs {demand.cost_ms:g} ms of a worker."
    )


def _ability(chosen: Mapping[str, Any], rated: Sequence[Mapping[str, Any]], demand: Demand, *, sufficient: bool) -> str:
    able = (
        f"With {chosen['workers']} workers {chosen['grouping']} bears {chosen['max_rate']:,.0f} tuples/s: the fullest "
        f"worker has {chosen['max_over_avg']:.2f} x the average"
    )
    if not sufficient:
        least = ceil(demand.wanted * demand.cost_ms / 1000)
        return f"{able}. That is not enough, and none here is: even a perfect load needs {least:,} workers; try more."
    fewer = [each for each in rated if each["workers"] < chosen["workers"]]
    if not fewer:
        return f"{able}. No fewer workers were asked for."
    best = max(fewer, key=lambda each: each["max_rate"])
    return (
        f"{able}. With fewer, the best is {best['grouping']} on {best['workers']} with {best['max_rate']:,.0f}, "
        "which is not enough."
    )


def _against(chosen: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return (
        f"{other['grouping']} would bear {other['max_rate'] / chosen['max_rate']:.0%} of that, at "
        f"{other['replication']:.2f} workers per key."
    )
