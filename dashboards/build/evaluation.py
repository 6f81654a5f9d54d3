"""The dashboard of evaluation: what the observer measures in every tick of event time, the same as Spark does later."""

from __future__ import annotations

from dashboards.build.frame import Dashboard, Row
from dashboards.build.panels import About, Panel, Query, by_worker, lines, number, words
from dashboards.build.promql import most, of, rate, total

TEXT = """
These panels show what the **observer** measured in each *tick* of event time, from the topic `distribution`.

What `skewless evaluate` computes with Spark over whole runs (quantiles of the ticks, groupings compared, charts) is no
series over time: it is in that command's report, and **not in Prometheus**. A tick here is a row there.
"""
TAKEN = total(rate(of("skewless_worker_tuples_total")))
PARTIALS = total(rate(of("skewless_worker_partials_total")))


def evaluation() -> Dashboard:
    """Describe the dashboard."""
    return Dashboard(
        "skewless-evaluation",
        "Skewless / Evaluation",
        "The measures of the evaluation, tick by tick as the observer tells them.",
        [
            Row("Last tick", _last()),
            Row("How even", _even()),
            Row("Keys", _keys()),
            Row("What it costs", _price()),
        ],
    )


def _last() -> list[Panel]:
    end = f"{most(of('skewless_observer_tick_seconds'))} * 1000"
    return [
        words(About("What is here", "What these panels show, and what not.", "none", 12, 4), TEXT),
        number(About("End of the tick", "In event time.", "dateTimeAsIso", 4, 4), Query(end, "end")),
        number(
            About("Tuples", "Tuples of all workers in the tick.", "short", 4, 4),
            Query(most(of("skewless_observer_tick_tuples")), "tuples"),
        ),
        number(
            About("Keys", "Distinct keys in the tick.", "short", 4, 4),
            Query(most(of("skewless_observer_tick_keys")), "keys"),
        ),
    ]


def _even() -> list[Panel]:
    deviation = most(of("skewless_observer_load_deviation_ratio"))
    return [
        by_worker(
            About("Share of each worker", "Of the tick's tuples, whichever router sent them.", "percentunit", 12, 9),
            Query(most(of("skewless_observer_load_ratio"), "worker"), "{{worker}}"),
        ),
        lines(
            About(
                "Imbalance and deviation",
                "(Fullest - average) / tuples, and the shares' deviation.",
                "percentunit",
                6,
                9,
            ),
            Query(most(of("skewless_observer_imbalance_ratio")), "imbalance"),
            Query(deviation, "standard deviation"),
        ),
        lines(
            About(
                "Fullest worker / average", "1 is even; 2 halves the rate where workers are the limit.", "none", 6, 9
            ),
            Query(most(of("skewless_observer_max_over_avg_ratio")), "fullest / average"),
        ),
    ]


def _keys() -> list[Panel]:
    return [
        lines(
            About("Tuples and keys", "In each tick.", "short"),
            Query(most(of("skewless_observer_tick_tuples")), "tuples"),
            Query(most(of("skewless_observer_tick_keys")), "keys"),
        ),
        lines(
            About("Share of the hottest keys", "Of the tick's tuples, by rank.", "percentunit"),
            Query(most(of("skewless_observer_hottest_ratio"), "rank"), "rank {{rank}}"),
            stacked=True,
        ),
        lines(
            About("Workers of the hottest keys", "How many workers held each of them, by rank.", "short"),
            Query(most(of("skewless_observer_hottest_workers"), "rank"), "rank {{rank}}"),
        ),
        lines(
            About("Replication", "Mean number of distinct workers that held a key in the tick.", "none"),
            Query(most(of("skewless_observer_replication_ratio")), "workers per key"),
        ),
    ]


def _price() -> list[Panel]:
    ticks = total(rate(of("skewless_observer_ticks_total")))
    results = total(rate(of("skewless_aggregator_results_total")), "kind")
    behind = "{event} - {mark}".format(
        event=most(of("skewless_event_time_seconds", stage="splitter")),
        mark=most(of("skewless_observer_tick_seconds")),
    )
    return [
        lines(
            About("Partial results per tuple", "What aggregation has to merge: the price of splitting keys.", "none"),
            Query(f"{PARTIALS} / ({TAKEN} > 0)", "partials per tuple"),
        ),
        lines(
            About("Results", "Results written per second: first ones, and revisions of earlier ones.", "cps"),
            Query(results, "{{kind}}"),
        ),
        lines(About("Ticks", "Ticks told per second.", "cps"), Query(ticks, "ticks")),
        lines(
            About("Behind the newest data", "Newest event time at the splitter minus the end of the last tick.", "s"),
            Query(behind, "event time"),
        ),
    ]
