"""Computes the measures of each run as JSON objects from the sums of the job. Does not use Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.load_metrics import Replicas, sums_by_worker
from skewless.config.pipeline_settings import PipelineSettings
from skewless.spark.completion import Completion
from skewless.spark.distribution_sums import Rows, Sums
from skewless.spark.latency import QUANTILES
from skewless.spark.load_measures import (
    TARGET,
    load_measures,
    reactions,
    reference_metrics,
    running,
    window_measures,
)
from skewless.wire.distribution import TickDistribution

NAMES = {
    "rows": "what the workers processed and the load consists of: tuples, or rows of tuples aggregated by the splitter",
    "rows_per_tuple": "rows / tuples; 1 without local aggregation (splitter.local)",
    "imbalance": "I/m: (most loaded worker - average) / rows",
    "imbalance_tuples": "I: most loaded worker - average, in rows",
    "running_imbalance": "I(t)/m(t): imbalance of all rows up to the end of the tick",
    "max_over_avg": "load of the most loaded worker / average load",
    "worst_window_max_over_avg": "the same of the worst window with at least 100 rows per worker; null without one",
    "rate": "average / most loaded worker: share of the rate of an even load, if workers are the limit",
    "load_stddev_percent": "population standard deviation over workers of their share in percent",
    "replication_factor": "mean number of distinct workers per key; replication_max: the maximum",
    "replication_bound": "lowest replication of perfect balance with W workers: sum of ceil(p_k W) / keys",
    "window_replication": "mean number of distinct workers per key and window; window_replication_max: the mean of the "
    "window where it is largest, not the largest number of a key",
    "aggregation_cost": "(key, worker) pairs per window: the minimum number of partial results",
    "partials_per_window": "partial results that reached the aggregator, per window",
    "pairs": "(key, worker) pairs that were used: memory of all workers",
    "state_bytes": "size of the largest state that a router saved; null if none was saved",
    "latency_ms": "per (window, key) with all its tuples, from the splitter's record of the last tuple to the record "
    "that made the result complete",
    "completed": "what the workers completed: tuples, tuples_per_s, and tuples `waiting` in their queues at the end. "
    "Times are Kafka's, from the first record of worker-input to the last one of worker-input or partials. latency_ms: "
    "of tuples, from the record that brought them to their worker to the record with their partial result; waiting_ms: "
    "age at the end of the tuples that wait. null if the grouping or the workers changed during the run, or if "
    "retention has deleted a part of it",
    "reactions": f"per change of the hottest key, until a tick's imbalance is at most {TARGET:g}; resolution is a tick",
    "duration_ms": "Kafka time from the first record of worker-input to the last",
    "observer_differs": "ticks of topic distribution whose tuples or rows by worker differ from this evaluation",
}
"""Descriptions of the measures; part of the JSON."""


def measures_of_run(
    settings: PipelineSettings, offsets: Mapping[str, Any], distributions: Sequence[TickDistribution], sums: Sums
) -> list[dict[str, Any]]:
    """Return all measures of a pipeline's run: one object per grouping and number of workers, in the order of time."""
    run_sums = sums.where(run=settings.full_name)
    ticks = sorted(run_sums.loads["tick"], key=_by_tick)
    segments = dict.fromkeys((row["grouping"], row["workers"]) for row in ticks)
    return [
        {
            **_description(settings, offsets, grouping, workers),
            "completed": _completed(run_sums.completions) if len(segments) == 1 else None,
            **_segment_measures(settings, distributions, run_sums.where(grouping=grouping, workers=workers), workers),
        }
        for grouping, workers in segments
    ]


def _description(settings: PipelineSettings, offsets: Mapping[str, Any], grouping: str, workers: int) -> dict[str, Any]:
    """Return what a run was, and the offsets that were read."""
    return {
        "pipeline": settings.full_name,
        "source": str(settings.source),
        "grouping": grouping,
        "workers": workers,
        "routers": settings.replicas.of("router"),
        "window_s": settings.aggregator.window_ms / 1000,
        "tick_s": settings.observer.tick_s,
        "offsets": _offsets_json(offsets),
    }


def _by_tick(row: Mapping[str, Any]) -> int:
    return int(row["tick"])


def _offsets_json(offsets: Mapping[str, Any]) -> dict[str, dict[str, list[int]]]:
    return {
        topic: {str(partition): list(offset_range) for partition, offset_range in ranges.items()}
        for topic, ranges in offsets.items()
    }


def _segment_measures(
    settings: PipelineSettings, distributions: Sequence[TickDistribution], sums: Sums, workers: int
) -> dict[str, Any]:
    loads_by_tick, loads_by_window = _grouped(sums.loads["tick"], "tick"), _grouped(sums.loads["window"], "window")
    loads, tuples = _loads(sums.loads["tick"], workers), _loads(sums.loads["tick"], workers, "tuples")
    first_at = min(row["first_at"] for row in sums.loads["tick"])
    last_at = max(row["last_at"] for row in sums.loads["tick"])
    duration_ms = last_at - first_at
    (totals,) = sums.replicas["run"]
    replicas = _replicas(totals)
    ticks = _ticks(settings.observer.tick_ms, loads_by_tick, sums, workers, first_at)
    replicas_by_window = {row["window"]: _replicas(row) for row in sums.replicas["window"]}
    windows = [(replicas_by_window[window], _loads(rows, workers)) for window, rows in loads_by_window.items()]
    partials = [row["rows"] for row in sums.partials if row["window"] in loads_by_window]
    return {
        **load_measures(loads, tuples),
        **replicas.measures(),
        **window_measures(windows, loads.mean()),
        "p1": totals["hottest"] / int(tuples.sum()),
        "replication_bound": totals["needed"] / replicas.keys,
        "partials_per_window": sum(partials) / max(1, len(windows)),
        "state_bytes": max((row["bytes"] for row in sums.state), default=None),
        "duration_ms": duration_ms,
        "reference": reference_metrics(loads, int(tuples.sum()), replicas, duration_ms),
        "latency_ms": _latency(sums.latencies),
        "latency_ms_by_window": _latency_by_window(sums.latencies, loads_by_window),
        "top_keys": _hottest_keys(sums.hottest["run"]),
        "reactions": reactions(ticks),
        "observer_differs": _differing_ticks(distributions, ticks),
        "ticks": ticks,
    }


def _ticks(
    tick_ms: int, loads_by_tick: Mapping[Any, Rows], sums: Sums, workers: int, first_at: int
) -> list[dict[str, Any]]:
    replicas = {row["tick"]: _replicas(row) for row in sums.replicas["tick"]}
    hottest = _grouped(sums.hottest["tick"], "tick")
    loads = {tick: _loads(rows, workers) for tick, rows in loads_by_tick.items()}
    tuples = {tick: _loads(rows, workers, "tuples") for tick, rows in loads_by_tick.items()}
    running_imbalances = dict(zip(loads, running(loads.values()), strict=True))
    return [
        {
            "tick_start": tick,
            "tick_end": tick + tick_ms,
            **load_measures(loads[tick], tuples[tick]),
            **replicas[tick].measures(),
            "running_imbalance": running_imbalances[tick],
            "reference": reference_metrics(
                loads[tick],
                int(tuples[tick].sum()),
                replicas[tick],
                max(row["last_at"] for row in rows) - min(row["first_at"] for row in rows),
            ),
            "last_at_ms": max(row["last_at"] for row in rows) - first_at,
            "top_keys": _hottest_keys(hottest.get(tick, ())),
        }
        for tick, rows in loads_by_tick.items()
    ]


def _grouped(rows: Rows, name: str) -> dict[Any, Rows]:
    """Return the rows by their value in a column, ascending."""
    groups: defaultdict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[name]):
        groups[row[name]].append(row)
    return dict(groups)


def _loads(rows: Rows, workers: int, column: str = "rows") -> NDArray[np.int64]:
    return sums_by_worker(_numbers(rows, "worker"), _numbers(rows, column), workers)


def _numbers(rows: Rows, column: str) -> NDArray[np.int64]:
    return np.array([row[column] for row in rows], dtype=np.int64)


def _replicas(row: Mapping[str, Any]) -> Replicas:
    return Replicas(row["keys"], row["pairs"], row["max_workers"])


def _hottest_keys(rows: Rows) -> list[dict[str, Any]]:
    ordered = sorted(rows, key=lambda row: row["rank"])
    return [{"key": row["key"], "tuples": row["tuples"], "workers": row["held_by"]} for row in ordered]


def _latency(rows: Rows) -> dict[str, Any] | None:
    total = [row for row in rows if row["window"] is None and row["results"]]
    return _quantiles(total[0]) if total else None


def _latency_by_window(rows: Rows, windows: Iterable[Hashable]) -> list[dict[str, Any]]:
    by_window = {row["window"]: row for row in rows}
    return [{"window_start": window, **_quantiles(by_window[window])} for window in windows if window in by_window]


def _quantiles(row: Mapping[str, Any], count: str = "results") -> dict[str, Any]:
    by_name = {f"p{share * 100:g}": value for share, value in zip(QUANTILES, row["quantiles"], strict=True)}
    return {count: row[count], **by_name, "max": row["max_ms"]}


def _completed(rows: Rows) -> dict[str, Any] | None:
    if not rows:
        return None
    (row,) = rows
    completion: Completion = row["completion"]
    return {
        **asdict(completion),
        "tuples_per_s": completion.tuples_per_s,
        "latency_ms": None if row["latency"] is None else _quantiles(row["latency"], "tuples"),
        "waiting_ms": None if row["waiting_for"] is None else _quantiles(row["waiting_for"], "tuples"),
    }


def _differing_ticks(distributions: Sequence[TickDistribution], ticks: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of ticks for which the observer counted other tuples or rows by worker than the evaluation."""
    by_tick = {tick["tick_start"]: (tick["tuples_by_worker"], tick["rows_by_worker"]) for tick in ticks}
    evaluated = [record for record in distributions if record.tick_start in by_tick]
    return sum((record.tuples_by_worker, record.rows_by_worker) != by_tick[record.tick_start] for record in evaluated)
