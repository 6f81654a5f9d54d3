"""The facts of an evaluation: measures of every run, as a JSON object. No Spark here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.public_records import TickDistribution
from skewless.settings import PipelineSettings
from skewless.spark.latency import QUANTILES
from skewless.spark.measures import (
    TARGET,
    Replicas,
    load_measures,
    loads_of,
    reactions,
    reference_metrics,
    replica_measures,
    running,
    window_measures,
)
from skewless.spark.sums import Rows, Sums

NAMES = {
    "imbalance": "I/m: (fullest worker - average) / tuples",
    "imbalance_tuples": "I: fullest worker - average, in tuples",
    "running_imbalance": "I(t)/m(t): imbalance of everything up to the end of the tick",
    "max_over_avg": "W x share of the fullest worker",
    "worst_window_max_over_avg": "the same of the worst window with at least 100 tuples per worker; null without one",
    "rate": "average / fullest: share of the rate of an even load, where workers are the limit",
    "std_dev": "population standard deviation over workers of their share in percent",
    "replication": "mean number of distinct workers per key; replication_max: the most",
    "replication_bound": "the least replication of perfect balance: sum of ceil(p_k W) / keys",
    "window_replication": "mean number of distinct workers per key and window",
    "aggregation_cost": "(key, worker) pairs per window: the fewest partial results there can be",
    "partials_per_window": "partial results that did reach the aggregator, per window",
    "pairs": "(key, worker) pairs that were ever used: memory of all workers",
    "state_bytes": "the largest state that a router saved; null when none was",
    "latency_ms": "per (window, key), from the splitter's record of its last tuple to the record that made it complete",
    "reactions": f"per change of the hottest key, until a tick's imbalance is at most {TARGET:g}; resolution is a tick",
    "duration_ms": "Kafka time from the first record of worker-input to the last",
    "observer_differs": "ticks of topic distribution whose tuples by worker are not those found here",
}
"""What the names mean; they are part of the answer."""


def facts_of(
    settings: PipelineSettings, offsets: Mapping[str, Any], told: Sequence[TickDistribution], sums: Sums
) -> list[dict[str, Any]]:
    """All measures of a pipeline's run, one object per grouping and W that it ran with, in the order of time."""
    own = sums.of(settings.name)
    segments = dict.fromkeys((row["grouping"], row["workers"]) for row in sorted(own.loads["tick"], key=_by_tick))
    return [
        {
            "pipeline": settings.name,
            "grouping": grouping,
            "workers": workers,
            "routers": settings.replicas.router,
            "window_s": settings.aggregator.window_s,
            "tick_s": settings.observer.tick_s,
            **_segment(settings, told, own.where(grouping=grouping, workers=workers), workers),
            "offsets": {topic: {str(at): list(span) for at, span in spans.items()} for topic, spans in offsets.items()},
        }
        for grouping, workers in segments
    ]


def _by_tick(row: Mapping[str, Any]) -> int:
    return int(row["tick"])


def _segment(settings: PipelineSettings, told: Sequence[TickDistribution], sums: Sums, workers: int) -> dict[str, Any]:
    ticks, windows = _grouped(sums.loads["tick"], "tick"), _grouped(sums.loads["window"], "window")
    loads = _loads(sums.loads["tick"], workers)
    first = min(row["first_at"] for row in sums.loads["tick"])
    last = max(row["last_at"] for row in sums.loads["tick"])
    (total,) = sums.replicas["run"]
    replicas = _replicas(total)
    by_tick = _ticks(settings.observer.tick_ms, ticks, sums, workers, first)
    by_window = {row["window"]: _replicas(row) for row in sums.replicas["window"]}
    partials = [row["rows"] for row in sums.partials if row["window"] in windows]
    return {
        **load_measures(loads),
        **replica_measures(replicas),
        **window_measures([(by_window[at], _loads(rows, workers)) for at, rows in windows.items()], loads.mean()),
        "p1": total["hottest"] / int(loads.sum()),
        "replication_bound": total["needed"] / replicas.keys,
        "partials_per_window": sum(partials) / max(1, len(windows)),
        "state_bytes": max((row["bytes"] for row in sums.state), default=None),
        "duration_ms": last - first,
        "reference": reference_metrics(loads, replicas, last - first),
        "latency_ms": _latency(sums.latencies),
        "latency_ms_by_window": _latencies(sums.latencies, windows),
        "hottest_keys": _keys(sums.hottest["run"]),
        "reactions": reactions(by_tick),
        "observer_differs": _differing(told, by_tick),
        "ticks": by_tick,
    }


def _ticks(tick_ms: int, ticks: Mapping[Any, Rows], sums: Sums, workers: int, first_at: int) -> list[dict[str, Any]]:
    replicas = {row["tick"]: _replicas(row) for row in sums.replicas["tick"]}
    hottest = _grouped(sums.hottest["tick"], "tick")
    loads = {tick: _loads(rows, workers) for tick, rows in ticks.items()}
    so_far = dict(zip(loads, running(loads.values()), strict=True))
    return [
        {
            "tick_start": tick,
            "tick_end": tick + tick_ms,
            **load_measures(loads[tick]),
            **replica_measures(replicas[tick]),
            "running_imbalance": so_far[tick],
            "reference": reference_metrics(
                loads[tick], replicas[tick], max(row["last_at"] for row in rows) - min(row["first_at"] for row in rows)
            ),
            "last_at_ms": max(row["last_at"] for row in rows) - first_at,
            "hottest_keys": _keys(hottest.get(tick, ())),
        }
        for tick, rows in ticks.items()
    ]


def _grouped(rows: Rows, name: str) -> dict[Any, Rows]:
    """Rows by what they have under a name, ascending."""
    found: defaultdict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[name]):
        found[row[name]].append(row)
    return dict(found)


def _loads(rows: Rows, workers: int) -> NDArray[np.int64]:
    return loads_of(((row["worker"], row["tuples"]) for row in rows), workers)


def _replicas(row: Mapping[str, Any]) -> Replicas:
    return Replicas(row["keys"], row["pairs"], row["most"])


def _keys(rows: Rows) -> list[dict[str, Any]]:
    ordered = sorted(rows, key=lambda row: row["place"])
    return [{"key": row["key"], "tuples": row["tuples"], "workers": row["held_by"]} for row in ordered]


def _latency(rows: Rows) -> dict[str, Any] | None:
    total = [row for row in rows if row["window"] is None and row["results"]]
    return _quantiles(total[0]) if total else None


def _latencies(rows: Rows, windows: Iterable[Hashable]) -> list[dict[str, Any]]:
    known = {row["window"]: row for row in rows}
    return [{"window_start": window, **_quantiles(known[window])} for window in windows if window in known]


def _quantiles(row: Mapping[str, Any]) -> dict[str, Any]:
    named = {f"p{share * 100:g}": value for share, value in zip(QUANTILES, row["quantiles"], strict=True)}
    return {"results": row["results"], **named, "max": row["most"]}


def _differing(told: Sequence[TickDistribution], ticks: Sequence[Mapping[str, Any]]) -> int:
    found = {tick["tick_start"]: tick["tuples_by_worker"] for tick in ticks}
    return sum(tick.tick_start in found and tick.tuples_by_worker != found[tick.tick_start] for tick in told)
