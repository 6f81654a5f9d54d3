"""Renders the report of `skewless evaluate`: a part for each input, which compares the runs that had it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from skewless.spark.comparison import listed
from skewless.spark.report.charts import bars, heat_map, lines
from skewless.spark.report.html_page import Figure, render

Run = Mapping[str, Any]
Rows = Mapping[str, tuple[Callable[[Run], float | None], Callable[[float], str], int]]
"""By name: value, text, and direction: lower is better (-1), higher is better (1), or neither (0)."""


def _number(number_format: str) -> Callable[[float], str]:
    return lambda value: format(value, number_format)


def _duration(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:,.1f} s"


def _of(*path: str) -> Callable[[Run], float | None]:
    """Return a function that returns the value at this path of a run; None if a part of it is None."""

    def value(run: Run) -> float | None:
        found: Any = run
        for name in path:
            found = None if found is None else found[name]
        return None if found is None else float(found)

    return value


COMPLETED: Rows = {
    "tuples completed per second": (_of("completed", "tuples_per_s"), _number(",.0f"), 1),
    "tuples that waited at the end": (_of("completed", "waiting"), _number(",.0f"), -1),
    "latency of completed tuples, median": (_of("completed", "latency_ms", "p50"), _duration, 0),
    "latency of completed tuples, 99 %": (_of("completed", "latency_ms", "p99"), _duration, 0),
    "age of waiting tuples, median": (_of("completed", "waiting_ms", "p50"), _duration, 0),
    "age of waiting tuples, oldest": (_of("completed", "waiting_ms", "max"), _duration, 0),
    "most loaded worker / average": (_of("max_over_avg"), _number(".2f"), -1),
    "workers per key": (_of("replication_factor"), _number(".2f"), -1),
}
"""What the workers completed, and why. Latency has no direction: it is low if the slowest tuples still wait."""

MEASURES: Rows = {
    "tuples that reached a worker": (_of("tuples"), _number(",.0f"), 0),
    "rows": (_of("rows"), _number(",.0f"), 0),
    "rows per tuple": (_of("rows_per_tuple"), _number(".3f"), 0),
    "keys": (_of("keys"), _number(",.0f"), 0),
    "share of the hottest key": (_of("p1"), _number(".2%"), 0),
    "imbalance I/m": (_of("imbalance"), _number(".2e"), -1),
    "most loaded worker / average, worst window": (_of("worst_window_max_over_avg"), _number(".3f"), -1),
    "standard deviation of the workers' shares, % points": (_of("load_stddev_percent"), _number(".3f"), -1),
    "workers per key, minimum for an even load": (_of("replication_bound"), _number(".3f"), 0),
    "workers per key, maximum": (_of("replication_max"), _number(",.0f"), -1),
    "workers per key, in a window": (_of("window_replication"), _number(".3f"), -1),
    "partial results per window": (_of("partials_per_window"), _number(",.0f"), -1),
    "(key, worker) pairs": (_of("pairs"), _number(",.0f"), -1),
    "router state, bytes": (_of("state_bytes"), _number(",.0f"), -1),
    "latency of complete results, median": (_of("latency_ms", "p50"), _duration, 0),
    "latency of complete results, 95 %": (_of("latency_ms", "p95"), _duration, 0),
    "latency of complete results, 99 %": (_of("latency_ms", "p99"), _duration, 0),
}

PUBLISHED: Rows = {
    "STD_DEV": (_of("reference", "STD_DEV"), _number(".3f"), 0),
    "DIST_COST": (_of("reference", "DIST_COST"), _number(".3f"), 0),
    "THROUGHPUT_RATIO": (_of("reference", "THROUGHPUT_RATIO"), _number(",.0f"), 0),
    "TOTAL_COUNT": (_of("reference", "TOTAL_COUNT"), _number(",.0f"), 0),
    "DURATION": (_of("reference", "DURATION"), _number(",.0f"), 0),
}
"""Metrics by their names in the publication of the groupings. They measure what the routers wrote."""


def report(evaluation: Mapping[str, Any]) -> str:
    """Return the report of an evaluation as HTML."""
    runs: Sequence[Run] = evaluation["runs"]
    numbers = count()
    figures: dict[str, list[Figure]] = {}
    parts = []
    for comparison in evaluation["comparisons"]:
        by_name = dict(zip(comparison["names"], (runs[index] for index in comparison["runs"]), strict=True))
        number = next(numbers)
        figures |= {f"{number}-{section}": group for section, group in _figures(by_name).items()}
        parts.append({"number": number, "summary": comparison["summary"], **_part(by_name)})
    return render(
        "evaluation.html.j2",
        figures,
        evaluated_at=_time(datetime.fromisoformat(evaluation["evaluated_at"]).timestamp() * 1000),
        parts=parts,
        names=evaluation["names"],
    )


def _figures(by_name: Mapping[str, Run]) -> dict[str, list[Figure]]:
    return {
        "load": [_heat_map(name, run) for name, run in by_name.items()],
        "imbalance": [
            _over_time(by_name, "imbalance", "I/m of the tick", log=True),
            _over_time(by_name, "running_imbalance", "I/m so far", log=True),
        ],
        "replication": [_over_time(by_name, "replication_factor", "workers per key"), _replication(by_name)],
        "latency": _latencies(by_name),
    }


def _part(by_name: Mapping[str, Run]) -> dict[str, Any]:
    first = next(iter(by_name.values()))
    return {
        "title": f"{listed(list(by_name))} on topic {first['source']}",
        "source": first["source"],
        "event_time": _period(
            first["ticks"][0]["tick_start"], max(run["ticks"][-1]["tick_end"] for run in by_name.values())
        ),
        "run_time": _run_time(by_name.values()),
        "completed": _table(COMPLETED, by_name),
        "measures": _table(MEASURES, by_name),
        "published": _table(PUBLISHED, by_name),
        "hottest_keys": [{"name": name, "rows": _hottest_keys(run)} for name, run in by_name.items()],
        "offsets_read": sum(
            end - first
            for run in by_name.values()
            for offset_ranges in run["offsets"].values()
            for first, end in offset_ranges.values()
        ),
        "records_read": [
            {"name": name, "rows": _records_read(run), "observer_differs": run["observer_differs"]}
            for name, run in by_name.items()
        ],
    }


def _run_time(runs: Iterable[Run]) -> str | None:
    """Return the period in which the workers completed tuples; None if it was not measured."""
    measured = [run["completed"] for run in runs if run["completed"]]
    if not measured:
        return None
    return _period(min(each["first_at"] for each in measured), max(each["last_at"] for each in measured))


def _time(milliseconds: float) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _period(start: int, end: int) -> str:
    """Return a period as text, with the day of its end if it is another one."""
    first, last = _time(start), _time(end)
    return f"{first} to {last.removeprefix(first[:11])}"


def _table(rows: Rows, by_name: Mapping[str, Run]) -> Mapping[str, Any]:
    runs = list(by_name.values())
    texts = [[name, *(_text(value(run), to_text) for run in runs)] for name, (value, to_text, _) in rows.items()]
    return {"head": ["", *by_name], "rows": texts, "best": _best(rows, runs)}


def _best(rows: Rows, runs: Sequence[Run]) -> set[tuple[int, int]]:
    """Return (row, column) of the best values, in the rows that have a direction and in which the runs differ."""
    cells = set()
    for row, (value, to_text, direction) in enumerate(rows.values()):
        values = [value(run) for run in runs]
        if direction and len({_text(number, to_text) for number in values}) > 1:
            scores = [float("-inf") if number is None else number * direction for number in values]
            cells.add((row, 1 + scores.index(max(scores))))
    return cells


def _text(value: float | None, to_text: Callable[[float], str]) -> str:
    return "-" if value is None else to_text(value)


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
            _ranges(offset_ranges),
        ]
        for topic, offset_ranges in run["offsets"].items()
    ]


def _ranges(offset_ranges: Mapping[str, Sequence[int]]) -> str:
    read = [f"{partition}: {first} to {end}" for partition, (first, end) in offset_ranges.items() if first < end]
    return ", ".join(read) or "-"
