"""The report of `skewless evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skewless.spark.report.charts import bars, heat_map, lines
from skewless.spark.report.page import Section, definitions, folded, page, paragraph, table

Run = Mapping[str, Any]

COLUMNS: Mapping[str, tuple[Callable[[Run], float | None], str, int]] = {
    "tuples": (lambda run: run["tuples"], ",.0f", 0),
    "keys": (lambda run: run["keys"], ",.0f", 0),
    "hottest key": (lambda run: run["p1"], ".2%", 0),
    "imbalance I/m": (lambda run: run["imbalance"], ".2e", -1),
    "max/avg": (lambda run: run["max_over_avg"], ".3f", -1),
    "in the worst window": (lambda run: run["worst_window_max_over_avg"], ".3f", -1),
    "STD_DEV, % points": (lambda run: run["std_dev"], ".3f", -1),
    "workers per key (DIST_COST)": (lambda run: run["replication"], ".3f", -1),
    "bound": (lambda run: run["replication_bound"], ".3f", 0),
    "most workers of a key": (lambda run: run["replication_max"], ",.0f", -1),
    "in a window": (lambda run: run["window_replication"], ".3f", -1),
    "partial results per window": (lambda run: run["partials_per_window"], ",.0f", -1),
    "(key, worker) pairs": (lambda run: run["pairs"], ",.0f", -1),
    "router state, bytes": (lambda run: run["state_bytes"], ",.0f", -1),
    "tuples/s (THROUGHPUT_RATIO)": (lambda run: run["reference"]["THROUGHPUT_RATIO"], ",.0f", 1),
    "latency p50, ms": (lambda run: _latency(run, "p50"), ",.0f", -1),
    "p95": (lambda run: _latency(run, "p95"), ",.0f", -1),
    "p99": (lambda run: _latency(run, "p99"), ",.0f", -1),
}
"""Value, format, and which is better: less (-1), more (1), or neither."""


def report(facts: Mapping[str, Any]) -> str:
    """Write the report of an evaluation as HTML."""
    runs: Sequence[Run] = facts["runs"]
    named = {_name(run): run for run in runs}
    lead = paragraph(
        f"{len(runs)} run{'s' * (len(runs) > 1)}, counted exactly from the committed records of the pipelines' topics."
    )
    return page(
        "Skewless: how even was the load, and at what price?",
        lead,
        [
            Section("Comparison", _comparison(named) + folded("What the measures mean", definitions(facts["names"]))),
            Section(
                "Load per worker over time",
                paragraph(
                    "Tuples of a worker in a tick, relative to the average worker: 1 everywhere is an even load."
                ),
                [_heat(name, run) for name, run in named.items()],
            ),
            Section(
                "Imbalance over time",
                paragraph(
                    "Of each tick, and of everything up to its end: (fullest worker - average) / tuples. A perfectly "
                    "even tick has none, which a logarithmic scale cannot show."
                ),
                [
                    _over_time(named, "imbalance", "I/m of the tick", log=True),
                    _over_time(named, "running_imbalance", "I/m so far", log=True),
                ],
            ),
            Section(
                "Replication",
                paragraph(
                    "Distinct workers per key: of each tick; and of whole runs beside the least for perfect balance."
                ),
                [_over_time(named, "replication", "workers per key"), _replication(named)],
            ),
            Section("Latency", *_latencies(named)),
            Section("Hottest keys", "".join(_hottest(name, run) for name, run in named.items())),
            Section("What was read", "".join(_read(name, run) for name, run in named.items())),
        ],
    )


def _name(run: Run) -> str:
    return f"{run['pipeline']}: {run['grouping']}, W = {run['workers']}"


def _latency(run: Run, quantile: str) -> float | None:
    return run["latency_ms"][quantile] if run["latency_ms"] else None


def _comparison(named: Mapping[str, Run]) -> str:
    runs = list(named.values())
    rows = [[name, *(_text(value(run), shape) for run in runs)] for name, (value, shape, _) in COLUMNS.items()]
    return table(["", *named], rows, set(_best(runs).items()))


def _best(runs: Sequence[Run]) -> dict[int, int]:
    """Find the column of the best run, by row, where runs differ and less or more is better."""
    found = {}
    for row, (value, shape, direction) in enumerate(COLUMNS.values()):
        values = [value(run) for run in runs]
        known = [number * direction for number in values if number is not None]
        if direction and len({_text(number, shape) for number in values}) > 1:
            found[row] = 1 + next(at for at, n in enumerate(values) if n is not None and n * direction == max(known))
    return found


def _text(value: float | None, shape: str) -> str:
    return "-" if value is None else format(value, shape)


def _heat(name: str, run: Run) -> Any:
    ticks = run["ticks"]
    size = max(len(tick["tuples_by_worker"]) for tick in ticks)
    padded = [tick["tuples_by_worker"] + [0] * (size - len(tick["tuples_by_worker"])) for tick in ticks]
    tuples = [list(row) for row in zip(*padded, strict=True)]
    averages = [max(1, sum(column)) / len(tick["tuples_by_worker"]) for column, tick in zip(padded, ticks, strict=True)]
    shares = [[round(n / average, 4) for n, average in zip(row, averages, strict=True)] for row in tuples]
    return heat_map(name, [tick["tick_start"] for tick in ticks], shares, tuples)


def _over_time(named: Mapping[str, Run], measure: str, title: str, *, log: bool = False) -> Any:
    return lines(
        {
            name: [(tick["tick_start"], tick[measure] or (None if log else 0.0)) for tick in run["ticks"]]
            for name, run in named.items()
        },
        title,
        log=log,
    )


def _replication(named: Mapping[str, Run]) -> Any:
    measures = {"whole run": "replication", "mean of windows": "window_replication", "bound": "replication_bound"}
    return bars(
        {title: {name: run[measure] for name, run in named.items()} for title, measure in measures.items()},
        "workers per key",
    )


def _latencies(named: Mapping[str, Run]) -> tuple[str, list[Any]]:
    text = paragraph(
        "Per key and window, by Kafka's timestamps: from when the splitter wrote the record of its last tuple, to when "
        "the aggregator wrote the record with which it was complete. With emit: updates the result is in that same "
        "transaction; with emit: final it follows when the window closes. The time that records waited in the source "
        "topic before the splitter read them is not in it."
    )
    known = {name: run for name, run in named.items() if run["latency_ms"]}
    if not known:
        return text + paragraph("None of these runs left the records that it is measured by."), []
    quantiles = {q: {name: run["latency_ms"][q] for name, run in known.items()} for q in ("p50", "p95", "p99")}
    by_window = {
        name: [(window["window_start"], window["p99"]) for window in run["latency_ms_by_window"]]
        for name, run in known.items()
    }
    return text, [bars(quantiles, "ms"), lines(by_window, "p99 of the window, ms")]


def _hottest(name: str, run: Run) -> str:
    rows = [
        [key["key"], f"{key['tuples']:,}", f"{key['tuples'] / run['tuples']:.2%}", f"{key['workers']:,}"]
        for key in run["hottest_keys"]
    ]
    return f"<h3>{paragraph(name)[3:-4]}</h3>" + table(["key", "tuples", "share", "workers"], rows)


def _read(name: str, run: Run) -> str:
    rows = [
        [
            topic,
            f"{len(spans)}",
            f"{sum(end - first for first, end in spans.values()):,}",
            f"{sum(first for first, _ in spans.values()):,}",
        ]
        for topic, spans in run["offsets"].items()
    ]
    checked = f"Ticks of topic distribution that say otherwise: {run['observer_differs']}."
    head = ["topic", "partitions", "offsets read", "offsets before, no longer there"]
    return folded(name, table(head, rows) + paragraph(checked))
