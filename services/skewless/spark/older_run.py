"""Measures of a run whose tuples retention has deleted, from the records of the observer alone. Does not use Spark.

The observer has counted all tuples and rows by tick and worker, so the measures of the load are exact. Of the keys it
has stored their number in each tick, and an estimate of the replication of the whole run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.load_metrics import load_stddev_percent
from skewless.config.pipeline_settings import PipelineSettings
from skewless.spark.evaluation_json import description
from skewless.spark.load_measures import Replicas, load_measures, loads_of, reactions, running, window_measures
from skewless.wire.distribution import TickDistribution

NO_REPLICAS = Replicas(0, 0, 0)


def measures_of_ticks(
    settings: PipelineSettings, offsets: Mapping[str, Any], distributions: Sequence[TickDistribution]
) -> list[dict[str, Any]]:
    """Return the measures as `measures_of_run` does, with null or an empty list for those that are not known.

    Their names are in `not_measured`. `distributions` are the ticks of the run in order.
    """
    segments: defaultdict[tuple[str, int], list[TickDistribution]] = defaultdict(list)
    for tick in distributions:
        segments[tick.grouping, tick.workers].append(tick)
    runs = []
    for (grouping, workers), ticks in segments.items():
        measures = _measures(settings, ticks, workers, is_whole_run=len(segments) == 1)
        # A run without a change of the hottest key has no reactions.
        missing = [name for name, value in measures.items() if value in (None, []) and name != "reactions"]
        runs.append({**description(settings, offsets, grouping, workers), **measures, "not_measured": missing})
    return runs


def _measures(
    settings: PipelineSettings, ticks: Sequence[TickDistribution], workers: int, *, is_whole_run: bool
) -> dict[str, Any]:
    loads_by_tick = [_loads(tick.rows_by_worker, workers) for tick in ticks]
    loads = _sum(loads_by_tick, workers)
    tuples = _sum([_loads(tick.tuples_by_worker, workers) for tick in ticks], workers)
    run = ticks[-1].run if is_whole_run else None
    replication = None if run is None else run.replication_factor
    duration_ms = None if run is None else run.duration_ms
    tick_measures = [
        _tick_measures(tick, tick_loads, running_imbalance)
        for tick, tick_loads, running_imbalance in zip(ticks, loads_by_tick, running(loads_by_tick), strict=True)
    ]
    return {
        "completed": None,
        **load_measures(loads, tuples),
        "keys": None,
        "replication_factor": replication,
        "replication_max": None,
        "pairs": None,
        **_window_measures(settings, ticks, workers, float(loads.mean())),
        "p1": None,
        "replication_bound": None,
        "partials_per_window": None,
        "state_bytes": None,
        "duration_ms": duration_ms,
        "reference": _reference(loads, replication, int(tuples.sum()), duration_ms),
        "latency_ms": None,
        "latency_ms_by_window": [],
        "top_keys": [],
        "reactions": reactions(tick_measures),
        "observer_differs": None,
        "ticks": tick_measures,
    }


def _tick_measures(tick: TickDistribution, loads: NDArray[np.int64], running_imbalance: float) -> dict[str, Any]:
    return {
        "tick_start": tick.tick_start,
        "tick_end": tick.tick_end,
        **load_measures(loads, _loads(tick.tuples_by_worker, tick.workers)),
        "keys": tick.keys,
        "replication_factor": tick.replication_factor,
        "replication_max": None,
        "pairs": _pairs(tick),
        "running_imbalance": running_imbalance,
        "reference": _reference(loads, tick.replication_factor, tick.tuples, None),
        "last_at_ms": None,
        "top_keys": [{"key": top.key, "tuples": top.tuples, "workers": top.workers} for top in tick.top_keys],
    }


def _window_measures(
    settings: PipelineSettings, ticks: Sequence[TickDistribution], workers: int, mean_load: float
) -> dict[str, Any]:
    """Return measures of the windows that consist of whole ticks. Replicas are known if each window is one tick."""
    windows = settings.aggregator.windows
    starts = windows.slices(np.array([tick.tick_start for tick in ticks]))
    last_starts = windows.slices(np.array([tick.tick_end - 1 for tick in ticks]))
    if windows.overlap > 1 or not np.array_equal(starts, last_starts):
        return dict.fromkeys(window_measures([], 0.0))
    are_ticks = settings.aggregator.window_ms == settings.observer.tick_ms
    by_window: defaultdict[int, list[TickDistribution]] = defaultdict(list)
    for tick, start in zip(ticks, starts.tolist(), strict=True):
        by_window[start].append(tick)
    measures = window_measures(
        [
            (
                Replicas(of_window[0].keys, _pairs(of_window[0]), 0) if are_ticks else NO_REPLICAS,
                _sum([_loads(tick.rows_by_worker, workers) for tick in of_window], workers),
            )
            for of_window in by_window.values()
        ],
        mean_load,
    )
    unknown = () if are_ticks else ("window_replication", "window_replication_max", "aggregation_cost")
    return measures | dict.fromkeys(unknown)


def _pairs(tick: TickDistribution) -> int:
    return round(tick.replication_factor * tick.keys)


def _loads(counts: Sequence[int], workers: int) -> NDArray[np.int64]:
    return loads_of(enumerate(counts), workers)


def _sum(loads: Sequence[NDArray[np.int64]], workers: int) -> NDArray[np.int64]:
    return loads_of(((worker, count) for each in loads for worker, count in enumerate(each.tolist())), workers)


def _reference(
    loads: NDArray[np.int64], replication: float | None, total: int, duration_ms: int | None
) -> dict[str, float | None]:
    """Return the five metrics of the reference as far as they are known."""
    return {
        "STD_DEV": load_stddev_percent(loads),
        "DIST_COST": replication,
        "THROUGHPUT_RATIO": total * 1000 / duration_ms if duration_ms else None,
        "TOTAL_COUNT": total,
        "DURATION": duration_ms,
    }
