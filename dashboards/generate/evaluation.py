"""The dashboard of evaluation: the observer's measurements per tick of event time, which Spark also computes."""

from __future__ import annotations

from dashboards.generate.balance import hottest_keys_panels, replication_panel
from dashboards.generate.dashboard import Dashboard, Row
from dashboards.generate.panels import Panel, PanelDescription, Query, heatmap_panel, line_panel, stat_panel, text_panel
from dashboards.generate.promql import maximum, rate, select, total

TEXT = """
These panels show the measurements of the **observer** for each *tick* of event time, from the topic `distribution`.

`skewless evaluate` computes statistics of whole runs with Spark: quantiles of the ticks, comparisons of groupings, and
charts. They are in the report of that command, and **not in Prometheus**. Each tick is one row of that report.
"""
RECEIVED = total(rate(select("skewless_worker_tuples_total")))
PARTIALS = total(rate(select("skewless_worker_partials_total")))


def evaluation() -> Dashboard:
    """Return the dashboard."""
    return Dashboard(
        "skewless-evaluation",
        "Skewless / Evaluation",
        "The measurements of the evaluation for each tick, as the observer emits them.",
        [
            Row("Last tick", _last()),
            Row("How even", _evenness()),
            Row("Keys", _keys()),
            Row("What it costs", _cost()),
        ],
        stages=("observer",),
    )


def _last() -> list[Panel]:
    end = f"{maximum(select('skewless_observer_tick_end_timestamp_seconds'))} * 1000"
    return [
        text_panel(
            PanelDescription("What is here", "Source of these panels, and what they do not include.", "none", 12, 4),
            TEXT,
        ),
        stat_panel(
            PanelDescription("End of the tick", "Event time at which the last tick ends.", "dateTimeAsIso", 4, 4),
            Query(end, "end"),
        ),
        stat_panel(
            PanelDescription("Tuples", "Tuples of all workers in the tick.", "short", 4, 4),
            Query(maximum(select("skewless_observer_tick_tuples")), "tuples"),
        ),
        stat_panel(
            PanelDescription("Keys", "Distinct keys in the tick.", "short", 4, 4),
            Query(maximum(select("skewless_observer_tick_keys")), "keys"),
        ),
    ]


def _evenness() -> list[Panel]:
    deviation = maximum(select("skewless_observer_load_stddev_ratio"))
    shares = maximum(select("skewless_observer_worker_load_share_ratio"), "worker")
    return [
        heatmap_panel(
            PanelDescription(
                "Load of each worker / average",
                "Rows of each worker in the tick, divided by the average. Even loads have a neutral colour.",
                "none",
                12,
                9,
            ),
            Query(f"{shares} / scalar(avg({shares}))", "{{worker}}"),
            highest=2,
            diverging=True,
        ),
        line_panel(
            PanelDescription(
                "Imbalance and deviation",
                "(Most loaded - average) / rows, and the standard deviation of the shares.",
                "percentunit",
                6,
                9,
            ),
            Query(maximum(select("skewless_observer_imbalance_ratio")), "imbalance"),
            Query(deviation, "standard deviation"),
        ),
        line_panel(
            PanelDescription(
                "Most loaded worker / average",
                "1 is even. 2 halves the rate if workers are the bottleneck.",
                "none",
                6,
                9,
            ),
            Query(maximum(select("skewless_observer_max_over_avg_ratio")), "peak / mean"),
        ),
    ]


def _keys() -> list[Panel]:
    return [
        line_panel(
            PanelDescription("Tuples and keys", "Tuples and distinct keys of each tick.", "short"),
            Query(maximum(select("skewless_observer_tick_tuples")), "tuples"),
            Query(maximum(select("skewless_observer_tick_keys")), "keys"),
        ),
        *hottest_keys_panels(),
        replication_panel(),
    ]


def _cost() -> list[Panel]:
    ticks = total(rate(select("skewless_observer_ticks_total")))
    results = total(rate(select("skewless_aggregator_results_total")), "kind")
    delay = "{event_time} - {tick_end}".format(
        event_time=maximum(select("skewless_max_event_timestamp_seconds", stage="splitter")),
        tick_end=maximum(select("skewless_observer_tick_end_timestamp_seconds")),
    )
    return [
        line_panel(
            PanelDescription(
                "Partial results per tuple",
                "Partials that the aggregator merges per tuple: the cost of splitting keys.",
                "none",
            ),
            Query(f"{PARTIALS} / ({RECEIVED} > 0)", "partials per tuple"),
        ),
        line_panel(
            PanelDescription(
                "Results", "Results written per second: first results, and revisions of earlier results.", "cps"
            ),
            Query(results, "{{kind}}"),
        ),
        line_panel(PanelDescription("Ticks", "Ticks emitted per second.", "cps"), Query(ticks, "ticks")),
        line_panel(
            PanelDescription(
                "Behind the newest data", "Newest event time at the splitter minus the end of the last tick.", "s"
            ),
            Query(delay, "event time"),
        ),
    ]
