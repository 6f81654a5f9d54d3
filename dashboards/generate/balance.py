"""The dashboard of load balance: load of each worker, hot keys, and the grouping's decisions."""

from __future__ import annotations

from dashboards.generate.dashboard import Dashboard, Event, Row
from dashboards.generate.panels import (
    Panel,
    PanelDescription,
    Query,
    bar_panel,
    heatmap_panel,
    line_panel,
    stat_panel,
    table_panel,
)
from dashboards.generate.promql import COMPARED, maximum, rate, select, total

SENT = total(rate(select("skewless_router_rows_total")), "worker")
RECEIVED = total(rate(select("skewless_worker_rows_total")), "worker")
BUSY = maximum(rate(select("skewless_worker_busy_seconds_total")), "worker")
WORKERS = f"scalar({maximum(select('skewless_router_workers'))})"
DECIDED = f"sum by (direction) (increase({select('skewless_router_key_worker_changes_total')}[$__rate_interval])) > 0"
HOT_KEYS = f"changes({select('skewless_observer_hot_keys')}[$__rate_interval]) > 0"
RESIZED = f"changes({select('skewless_router_workers')}[$__rate_interval]) > 0"


def balance() -> Dashboard:
    """Return the dashboard."""
    return Dashboard(
        "skewless-balance",
        "Skewless / Load balance",
        "Load of each worker over time, its imbalance, the hottest keys, and groupings side by side.",
        [
            Row("Now", _now()),
            Row("Load of each worker", _load()),
            Row("How even, and at what price", _evenness()),
            Row("Hot keys", _hot_keys()),
            Row("Local aggregation (splitter.local)", _local(), folded=True),
            Row("Groupings side by side", _comparison()),
        ],
        events=[
            Event("Scale decisions", DECIDED, "keys {{direction}}", "blue"),
            Event("Hot keys", HOT_KEYS, "the number of hot keys changed: topic hot-keys names them", "orange"),
            Event("Number of workers", RESIZED, "the number of workers changed", "purple"),
        ],
        compares=True,
        stages=("router",),
    )


def _now() -> list[Panel]:
    return [
        stat_panel(
            PanelDescription("Grouping", "Method by which routers choose the worker of a tuple.", "none", 4, 4),
            Query(maximum(select("skewless_router_info"), "grouping"), "{{grouping}}"),
            name=True,
        ),
        stat_panel(
            PanelDescription("Workers", "Number of worker partitions that receive tuples.", "short", 4, 4),
            Query(maximum(select("skewless_router_workers")), "W"),
        ),
        most_loaded_panel(),
        stat_panel(
            PanelDescription("Imbalance", "(Most loaded worker - average) / all rows.", "percentunit", 4, 4),
            Query(imbalance(SENT), "imbalance"),
        ),
        stat_panel(
            PanelDescription("Replication", "Mean number of workers per key in the last tick.", "none", 4, 4),
            Query(maximum(select("skewless_observer_replication_factor")), "workers per key"),
        ),
        stat_panel(
            PanelDescription("Hottest key", "The hottest key's share of the last tick's tuples.", "percentunit", 4, 4),
            Query(maximum(select("skewless_observer_top_key_share_ratio", rank="1")), "of all tuples"),
        ),
    ]


def _load() -> list[Panel]:
    return [
        heatmap_panel(
            PanelDescription(
                "Load of each worker / average",
                "Rows sent to each worker, divided by the average of all workers. Even loads have a neutral colour. A"
                " red line is a hot worker: at 2 it has twice the average or more.",
                "none",
                12,
                10,
            ),
            Query(f"{SENT} / scalar({mean(SENT)})", "{{worker}}"),
            highest=2,
            diverging=True,
        ),
        heatmap_panel(
            PanelDescription(
                "Time at work of each worker",
                "Share of the time that a worker processes batches. With `worker.cost`, 100 % is its limit. Without,"
                " *Busy time by stage* in *Pipeline* shows how near a process is to its limit.",
                "percentunit",
                12,
                10,
            ),
            Query(BUSY, "{{worker}}"),
            highest=1,
        ),
        line_panel(
            PanelDescription(
                "Share of each worker",
                "Share of all rows sent. With an even load all shares are equal.",
                "percentunit",
                12,
                8,
            ),
            Query(f"{SENT} / scalar({total(rate(select('skewless_router_rows_total')))})", "{{worker}}"),
            stacked=True,
        ),
        bar_panel(
            PanelDescription(
                "Load against the average", "Rows sent to each worker now / average of all workers.", "none", 12, 8
            ),
            Query(f"{SENT} / scalar({mean(SENT)})", "{{worker}}"),
            limits=(1.2, 1.5),
        ),
    ]


def _evenness() -> list[Panel]:
    observer = maximum(select("skewless_observer_max_over_avg_ratio"))
    return [
        line_panel(
            PanelDescription(
                "Most loaded worker / average",
                "As sent by routers, as received by workers, and per tick of event time.",
                "none",
            ),
            Query(peak_to_mean(SENT), "sent"),
            Query(peak_to_mean(RECEIVED), "received"),
            Query(observer, "in the tick"),
        ),
        line_panel(
            PanelDescription(
                "Imbalance",
                "(Most loaded worker - average) / all rows, measured in the same three ways.",
                "percentunit",
            ),
            Query(imbalance(SENT), "sent"),
            Query(imbalance(RECEIVED), "received"),
            Query(maximum(select("skewless_observer_imbalance_ratio")), "in the tick"),
        ),
        replication_panel(),
        line_panel(
            PanelDescription(
                "Keys held by each worker", "Keys at the last commit. A key counts once per pane.", "short"
            ),
            Query(total(select("skewless_worker_keys"), "worker"), "{{worker}}"),
        ),
    ]


def _hot_keys() -> list[Panel]:
    return [
        *hottest_keys_panels(),
        line_panel(
            PanelDescription(
                "Keys that are split",
                "Keys with more workers than the grouping gives every key, and the largest number of workers of a key.",
                "short",
            ),
            Query(maximum(select("skewless_router_split_keys")), "split keys"),
            Query(maximum(select("skewless_router_max_workers_per_key")), "most workers of a key"),
        ),
        line_panel(
            PanelDescription("Scale decisions", "Workers added to keys and removed from them, per second.", "cps"),
            Query(total(rate(select("skewless_router_key_worker_changes_total")), "direction"), "{{direction}}"),
        ),
    ]


def _local() -> list[Panel]:
    received = total(rate(select("skewless_splitter_local_tuples_total")))
    sent = total(rate(select("skewless_splitter_local_rows_total")))
    return [
        line_panel(
            PanelDescription(
                "Rows per tuple",
                "Rows to which splitters reduce tuples, and what the workers process. 1: nothing is saved.",
                "percentunit",
            ),
            Query(f"{sent} / {received}", "of aggregated tuples"),
            Query(
                f"{total(RECEIVED)} / {total(rate(select('skewless_worker_tuples_total')))}", "of all tuples at workers"
            ),
        ),
        line_panel(
            PanelDescription("Partitions without aggregation", "Source partitions for which it is off now.", "short"),
            Query(f"count({select('skewless_splitter_local_active')} == 0) or vector(0)", "off"),
        ),
        line_panel(
            PanelDescription("Rows in memory", "Rows, and tuples that are not aggregated yet.", "short"),
            Query(total(select("skewless_splitter_local_buffer_rows")), "rows"),
        ),
        line_panel(
            PanelDescription(
                "Flushes",
                "Flushes per second, by cause: a commit, a size, the end of a local window, or no more records.",
                "cps",
            ),
            Query(total(rate(select("skewless_splitter_local_flushes_total")), "cause"), "{{cause}}"),
        ),
        line_panel(
            PanelDescription(
                "Records read again",
                "Source records per second that splitters read again on assignment, because they held their tuples.",
                "cps",
            ),
            Query(total(rate(select("skewless_splitter_local_reread_records_total"))), "records"),
        ),
    ]


def _comparison() -> list[Panel]:
    legend = "{{pipeline}} ({{grouping}})"
    return [
        line_panel(
            PanelDescription(
                "Most loaded worker / average", "In the last tick, for each pipeline that is compared.", "none", 8
            ),
            Query(_side_by_side("skewless_observer_max_over_avg_ratio"), legend),
        ),
        line_panel(
            PanelDescription("Imbalance", "In the last tick, for each pipeline that is compared.", "percentunit", 8),
            Query(_side_by_side("skewless_observer_imbalance_ratio"), legend),
        ),
        line_panel(
            PanelDescription(
                "Replication", "Workers per key in the last tick, for each pipeline that is compared.", "none", 8
            ),
            Query(_side_by_side("skewless_observer_replication_factor"), legend),
        ),
        table_panel(
            PanelDescription(
                "Pipelines that are compared", "Load and cost of each pipeline in its last tick.", "short", 24, 5
            ),
            {
                "Workers": _last("skewless_router_workers"),
                "Peak / mean": _last("skewless_observer_max_over_avg_ratio"),
                "Imbalance": _last("skewless_observer_imbalance_ratio"),
                "Replication": _last("skewless_observer_replication_factor"),
                "Keys": _last("skewless_observer_tick_keys"),
                "Tuples per tick": _last("skewless_observer_tick_tuples"),
                "Rows per tick": _last("skewless_observer_tick_rows"),
            },
        ),
    ]


def mean(loads: str) -> str:
    """Return the mean over all workers, including those without tuples."""
    return f"sum({loads}) / {WORKERS}"


def most_loaded_panel(hint: str = "") -> Panel:
    """Return the panel with the load of the most loaded worker. `hint` ends its description."""
    return stat_panel(
        PanelDescription(
            "Most loaded worker / average",
            f"1 is even. 2 halves the rate if workers are the bottleneck.{hint}",
            "none",
            4,
            4,
        ),
        Query(peak_to_mean(SENT), "peak / mean"),
        limits=(1.2, 1.5),
    )


def hottest_keys_panels() -> list[Panel]:
    """Return the panels with the hottest keys' shares and numbers of workers."""
    return [
        line_panel(
            PanelDescription("Share of the hottest keys", "Share of the last tick's tuples, by rank.", "percentunit"),
            Query(maximum(select("skewless_observer_top_key_share_ratio"), "rank"), "rank {{rank}}"),
            stacked=True,
        ),
        line_panel(
            PanelDescription(
                "Workers of the hottest keys",
                "Number of workers of each of these keys in the last tick, by rank.",
                "short",
            ),
            Query(maximum(select("skewless_observer_top_key_workers"), "rank"), "rank {{rank}}"),
        ),
    ]


def replication_panel() -> Panel:
    """Return the panel with the workers per key."""
    return line_panel(
        PanelDescription("Replication", "Mean number of workers per key: the memory cost of an even load.", "none"),
        Query(maximum(select("skewless_observer_replication_factor")), "workers per key"),
    )


def peak_to_mean(loads: str) -> str:
    """Return the highest load divided by the mean; nothing without load."""
    return f"max({loads}) / ({mean(loads)} > 0)"


def imbalance(loads: str) -> str:
    """Return (highest load - mean) / sum of all loads; nothing without load."""
    return f"(max({loads}) - {mean(loads)}) / (sum({loads}) > 0)"


def _side_by_side(name: str) -> str:
    info = maximum(select("skewless_router_info", COMPARED), "pipeline", "grouping")
    return f"{maximum(select(name, COMPARED), 'pipeline')} * on (pipeline) group_right () {info}"


def _last(name: str) -> str:
    """Return the last value in the time range, which includes pipelines that have ended."""
    info = maximum(f"last_over_time({select('skewless_router_info', COMPARED)}[$__range])", "pipeline", "grouping")
    value = maximum(f"last_over_time({select(name, COMPARED)}[$__range])", "pipeline")
    return f"{value} * on (pipeline) group_right () {info}"
