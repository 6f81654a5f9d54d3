"""The dashboard of load balance: how much each worker gets, which keys make it uneven, and what the grouping does."""

from __future__ import annotations

from dashboards.build.frame import Dashboard, Event, Row
from dashboards.build.panels import About, Panel, Query, bars, by_worker, lines, number, rows
from dashboards.build.promql import COMPARED, most, of, rate, total

SENT = total(rate(of("skewless_router_tuples_total")), "worker")
TAKEN = total(rate(of("skewless_worker_tuples_total")), "worker")
BUSY = most(rate(of("skewless_worker_processing_seconds_total")), "worker")
WORKERS = f"scalar({most(of('skewless_router_workers'))})"
DECIDED = f"sum by (direction) (increase({of('skewless_router_scale_decisions_total')}[$__rate_interval])) > 0"
RESIZED = f"changes({of('skewless_router_workers')}[$__rate_interval]) > 0"


def balance() -> Dashboard:
    """Describe the dashboard."""
    return Dashboard(
        "skewless-balance",
        "Skewless / Load balance",
        "Load of every worker over time, how even it is, what the hottest keys do, and groupings side by side.",
        [
            Row("Now", _now()),
            Row("Load of each worker", _load()),
            Row("How even, and at what price", _even()),
            Row("Hot keys", _hot()),
            Row("Groupings side by side", _compared()),
        ],
        events=[
            Event("Scale decisions", DECIDED, "keys {{direction}}", "blue"),
            Event("Number of workers", RESIZED, "W was changed", "purple"),
        ],
        compares=True,
    )


def _now() -> list[Panel]:
    return [
        number(
            About("Grouping", "How routers choose a worker for a tuple.", "none", 4, 4),
            Query(most(of("skewless_router_info"), "grouping"), "{{grouping}}"),
            name=True,
        ),
        number(
            About("Workers", "W: how many worker partitions get tuples.", "short", 4, 4),
            Query(most(of("skewless_router_workers")), "W"),
        ),
        number(
            About(
                "Fullest worker / average", "1 is even; 2 halves the rate where workers are the limit.", "none", 4, 4
            ),
            Query(uneven(SENT), "fullest / average"),
            limits=(1.2, 1.5),
        ),
        number(
            About("Imbalance", "(Fullest worker - average) / all tuples.", "percentunit", 4, 4),
            Query(imbalance(SENT), "imbalance"),
        ),
        number(
            About("Replication", "Mean number of workers that held a key, in the last tick.", "none", 4, 4),
            Query(most(of("skewless_observer_replication_ratio")), "workers per key"),
        ),
        number(
            About("Hottest key", "Its share of the last tick's tuples.", "percentunit", 4, 4),
            Query(most(of("skewless_observer_hottest_ratio", rank="1")), "of all tuples"),
        ),
    ]


def _load() -> list[Panel]:
    return [
        by_worker(
            About("Tuples sent to each worker", "Per second; a hot worker is a bright line.", "cps", 12, 10),
            Query(SENT, "{{worker}}"),
        ),
        by_worker(
            About(
                "Time at work of each worker", "Share of the time; at 100 % it can do no more.", "percentunit", 12, 10
            ),
            Query(BUSY, "{{worker}}"),
            highest=1,
        ),
        lines(
            About("Share of each worker", "Share of all tuples sent; even is 1 / W each.", "percentunit", 12, 8),
            Query(f"{SENT} / scalar({total(rate(of('skewless_router_tuples_total')))})", "{{worker}}"),
            stacked=True,
        ),
        bars(
            About("Load against the average", "Tuples sent to each worker now / what even would be.", "none", 12, 8),
            Query(f"{SENT} / scalar({mean(SENT)})", "{{worker}}"),
            limits=(1.2, 1.5),
        ),
    ]


def _even() -> list[Panel]:
    observer = most(of("skewless_observer_max_over_avg_ratio"))
    return [
        lines(
            About(
                "Fullest worker / average",
                "As sent by routers, as taken by workers, and in event time by tick.",
                "none",
            ),
            Query(uneven(SENT), "sent"),
            Query(uneven(TAKEN), "taken"),
            Query(observer, "in the tick"),
        ),
        lines(
            About("Imbalance", "(Fullest worker - average) / all tuples, in these three ways.", "percentunit"),
            Query(imbalance(SENT), "sent"),
            Query(imbalance(TAKEN), "taken"),
            Query(most(of("skewless_observer_imbalance_ratio")), "in the tick"),
        ),
        lines(
            About("Replication", "Mean number of workers that held a key: what evenness costs in memory.", "none"),
            Query(most(of("skewless_observer_replication_ratio")), "workers per key"),
        ),
        lines(
            About("Keys held by each worker", "At its last commit; a key counts once for each pane.", "short"),
            Query(total(of("skewless_worker_keys"), "worker"), "{{worker}}"),
        ),
    ]


def _hot() -> list[Panel]:
    return [
        lines(
            About("Share of the hottest keys", "Of the last tick's tuples, by rank.", "percentunit"),
            Query(most(of("skewless_observer_hottest_ratio"), "rank"), "rank {{rank}}"),
            stacked=True,
        ),
        lines(
            About(
                "Workers of the hottest keys", "How many workers held each of them in the last tick, by rank.", "short"
            ),
            Query(most(of("skewless_observer_hottest_workers"), "rank"), "rank {{rank}}"),
        ),
        lines(
            About(
                "Keys that are split",
                "Keys that may have more workers than every key has, and the widest one.",
                "short",
            ),
            Query(most(of("skewless_router_split_keys")), "split keys"),
            Query(most(of("skewless_router_widest_key_workers")), "workers of the widest"),
        ),
        lines(
            About("Scale decisions", "Workers given to keys and taken from them, per second.", "cps"),
            Query(total(rate(of("skewless_router_scale_decisions_total")), "direction"), "{{direction}}"),
        ),
    ]


def _compared() -> list[Panel]:
    legend = "{{pipeline}} ({{grouping}})"
    return [
        lines(
            About("Fullest worker / average", "In the last tick, of each pipeline that is compared.", "none", 8),
            Query(_side_by_side("skewless_observer_max_over_avg_ratio"), legend),
        ),
        lines(
            About("Imbalance", "In the last tick, of each pipeline that is compared.", "percentunit", 8),
            Query(_side_by_side("skewless_observer_imbalance_ratio"), legend),
        ),
        lines(
            About("Replication", "Workers per key in the last tick, of each pipeline that is compared.", "none", 8),
            Query(_side_by_side("skewless_observer_replication_ratio"), legend),
        ),
        rows(
            About(
                "Pipelines that are compared", "What each gave and what it cost, as of its last tick.", "short", 24, 5
            ),
            {
                "Workers": _last("skewless_router_workers"),
                "Fullest / average": _last("skewless_observer_max_over_avg_ratio"),
                "Imbalance": _last("skewless_observer_imbalance_ratio"),
                "Replication": _last("skewless_observer_replication_ratio"),
                "Keys": _last("skewless_observer_tick_keys"),
                "Tuples per tick": _last("skewless_observer_tick_tuples"),
            },
        ),
    ]


def mean(loads: str) -> str:
    """Take the average over the W workers, those that get nothing too."""
    return f"sum({loads}) / {WORKERS}"


def uneven(loads: str) -> str:
    """Divide the highest load by the average."""
    return f"max({loads}) / ({mean(loads)})"


def imbalance(loads: str) -> str:
    """Divide what the highest load has beyond the average by all load."""
    return f"(max({loads}) - {mean(loads)}) / sum({loads})"


def _side_by_side(name: str) -> str:
    info = most(of("skewless_router_info", COMPARED), "pipeline", "grouping")
    return f"{most(of(name, COMPARED), 'pipeline')} * on (pipeline) group_right () {info}"


def _last(name: str) -> str:
    """Take the last value in the time shown, so that pipelines that have ended are there too."""
    info = most(f"last_over_time({of('skewless_router_info', COMPARED)}[$__range])", "pipeline", "grouping")
    value = most(f"last_over_time({of(name, COMPARED)}[$__range])", "pipeline")
    return f"{value} * on (pipeline) group_right () {info}"
