"""Renders the report of `skewless evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skewless.spark.report.charts import bars, heat_map, lines
from skewless.spark.report.html_page import Figure, render

Run = Mapping[str, Any]

COLUMNS: Mapping[str, tuple[Callable[[Run], float | None], str, int]] = {
    "tuples": (lambda run: run["tuples"], ",.0f", 0),
    "rows": (lambda run: run["rows"], ",.0f", 0),
    "rows per tuple": (lambda run: run["rows_per_tuple"], ".3f", 0),
    "keys": (lambda run: run["keys"], ",.0f", 0),
    "hottest key": (lambda run: run["p1"], ".2%", 0),
    "imbalance I/m": (lambda run: run["imbalance"], ".2e", -1),
    "max/avg": (lambda run: run["max_over_avg"], ".3f", -1),
    "max/avg of the worst window": (lambda run: run["worst_window_max_over_avg"], ".3f", -1),
    "STD_DEV, % points": (lambda run: run["load_stddev_percent"], ".3f", -1),
    "workers per key (DIST_COST)": (lambda run: run["replication_factor"], ".3f", -1),
    "bound": (lambda run: run["replication_bound"], ".3f", 0),
    "maximum workers of a key": (lambda run: run["replication_max"], ",.0f", -1),
    "in a window": (lambda run: run["window_replication"], ".3f", -1),
    "partial results per window": (lambda run: run["partials_per_window"], ",.0f", -1),
    "(key, worker) pairs": (lambda run: run["pairs"], ",.0f", -1),
    "router state, bytes": (lambda run: run["state_bytes"], ",.0f", -1),
    "tuples/s (THROUGHPUT_RATIO)": (lambda run: run["reference"]["THROUGHPUT_RATIO"], ",.0f", 1),
    "latency p50, ms": (lambda run: _latency(run, "p50"), ",.0f", -1),
    "p95": (lambda run: _latency(run, "p95"), ",.0f", -1),
    "p99": (lambda run: _latency(run, "p99"), ",.0f", -1),
}
"""Value, format, and direction: lower is better (-1), higher is better (1), or neither (0)."""


def report(evaluation: Mapping[str, Any]) -> str:
    """Return the report of an evaluation as HTML."""
    runs: Sequence[Run] = evaluation["runs"]
    by_name = {_name(run): run for run in runs}
    figures = {
        "load": [_heat_map(name, run) for name, run in by_name.items()],
        "imbalance": [
            _over_time(by_name, "imbalance", "I/m of the tick", log=True),
            _over_time(by_name, "running_imbalance", "I/m so far", log=True),
        ],
        "replication": [_over_time(by_name, "replication_factor", "workers per key"), _replication(by_name)],
        "latency": _latencies(by_name),
    }
    return render(
        "evaluation.html.j2",
        figures,
        run_count=len(runs),
        comparison=_comparison(by_name),
        names=evaluation["names"],
        not_measured={name: run["not_measured"] for name, run in by_name.items() if run["not_measured"]},
        hottest_keys=[{"name": name, "rows": _hottest_keys(run)} for name, run in by_name.items()],
        records_read=[
            {"name": name, "rows": _records_read(run), "observer_differs": run["observer_differs"]}
            for name, run in by_name.items()
        ],
    )


def _name(run: Run) -> str:
    return f"{run['pipeline']}: {run['grouping']}, W = {run['workers']}"


def _latency(run: Run, quantile: str) -> float | None:
    return run["latency_ms"][quantile] if run["latency_ms"] else None


def _comparison(by_name: Mapping[str, Run]) -> Mapping[str, Any]:
    runs = list(by_name.values())
    rows = [
        [name, *(_text(value(run), number_format) for run in runs)]
        for name, (value, number_format, _) in COLUMNS.items()
    ]
    return {"head": ["", *by_name], "rows": rows, "best": set(_best(runs).items())}


def _best(runs: Sequence[Run]) -> dict[int, int]:
    """Return the column of the best run by row, for the rows in which runs differ and that have a direction."""
    best_columns = {}
    for row, (value, number_format, direction) in enumerate(COLUMNS.values()):
        values = [value(run) for run in runs]
        scores = [None if number is None else number * direction for number in values]
        if direction and len({_text(number, number_format) for number in values}) > 1:
            best_score = max(score for score in scores if score is not None)
            best_columns[row] = 1 + scores.index(best_score)
    return best_columns


def _text(value: float | None, number_format: str) -> str:
    return "-" if value is None else format(value, number_format)


def _heat_map(name: str, run: Run) -> Figure:
    ticks = run["ticks"]
    workers = max(len(tick["rows_by_worker"]) for tick in ticks)
    padded = [tick["rows_by_worker"] + [0] * (workers - len(tick["rows_by_worker"])) for tick in ticks]
    loads = [list(row) for row in zip(*padded, strict=True)]
    averages = [max(1, sum(column)) / len(tick["rows_by_worker"]) for column, tick in zip(padded, ticks, strict=True)]
    shares = [[round(count / average, 4) for count, average in zip(row, averages, strict=True)] for row in loads]
    return heat_map(name, [tick["tick_start"] for tick in ticks], shares, loads)


def _over_time(by_name: Mapping[str, Run], measure: str, title: str, *, log: bool = False) -> Figure:
    return lines(
        {
            name: [(tick["tick_start"], tick[measure] or (None if log else 0.0)) for tick in run["ticks"]]
            for name, run in by_name.items()
        },
        title,
        log=log,
    )


def _replication(by_name: Mapping[str, Run]) -> Figure:
    measures = {
        "whole run": "replication_factor",
        "mean of windows": "window_replication",
        "bound": "replication_bound",
    }
    return bars(
        {title: {name: run[measure] for name, run in by_name.items()} for title, measure in measures.items()},
        "workers per key",
    )


def _latencies(by_name: Mapping[str, Run]) -> list[Figure]:
    """Return the charts of latency; none if no run has records from which it can be computed."""
    measured = {name: run for name, run in by_name.items() if run["latency_ms"]}
    if not measured:
        return []
    quantiles = {
        quantile: {name: run["latency_ms"][quantile] for name, run in measured.items()}
        for quantile in ("p50", "p95", "p99")
    }
    by_window = {
        name: [(window["window_start"], window["p99"]) for window in run["latency_ms_by_window"]]
        for name, run in measured.items()
    }
    return [bars(quantiles, "ms"), lines(by_window, "p99 of the window, ms")]


def _hottest_keys(run: Run) -> list[list[str]]:
    return [
        [key["key"], f"{key['tuples']:,}", f"{key['tuples'] / run['tuples']:.2%}", f"{key['workers']:,}"]
        for key in run["top_keys"]
    ]


def _records_read(run: Run) -> list[list[str]]:
    return [
        [
            topic,
            f"{len(offset_ranges)}",
            f"{sum(end - first for first, end in offset_ranges.values()):,}",
            f"{sum(first for first, _ in offset_ranges.values()):,}",
        ]
        for topic, offset_ranges in run["offsets"].items()
    ]
