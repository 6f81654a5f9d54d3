"""The dashboard of a whole pipeline: whether it works, how far it is, and which stage is the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.generate.balance import most_loaded_panel
from dashboards.generate.dashboard import Dashboard, Event, Row
from dashboards.generate.panels import Panel, PanelDescription, Query, line_panel, stat_panel
from dashboards.generate.promql import (
    MEMORY,
    OF_PROCESSES,
    PROCESS,
    growth,
    maximum,
    minimum,
    quantile,
    rate,
    select,
    total,
    watermark_delay,
    with_stage_label,
)
from skewless.topology import SOURCE_STAGE, STAGES, USER_TOPICS, Stage

STARTED = (
    f"time() - process_start_time_seconds{{{OF_PROCESSES}}} "
    f"* on ({PROCESS}) group_right () {select('skewless_build_info')} < 60"
)

COUNT_TUPLES = "splitter|router|worker|aggregator|observer|flusher"
"""Stages that count every tuple of the pipeline. The others count something else, or nothing."""


def pipeline(stages: Sequence[Stage] = STAGES) -> Dashboard:
    """Return the dashboard of pipelines with these stages."""
    return Dashboard(
        "skewless-pipeline",
        "Skewless / Pipeline",
        "Progress and health of a pipeline.",
        [Row("Pipeline", overview(stages))],
        events=[Event("Starts", STARTED, "{{stage}} {{instance}} started", "red")],
    )


def overview(stages: Sequence[Stage]) -> list[Panel]:
    """Return the panels of the overview row."""
    readers = [stage for stage in stages if USER_TOPICS.keys() & set(stage.inputs)]
    # The join and the splitter may read what an earlier stage has written, so the first stages with series count.
    repartitioning = "|".join(stage.name for stage in readers if stage.repartitions)
    first = [f"~{repartitioning}", *(stage.name for stage in readers if not stage.repartitions)]
    records_in = (total(rate(select("skewless_consumed_records_total", stage=name))) for name in first)
    lag_in = select("skewless_consumer_lag_records", stage=f"~{'|'.join(stage.name for stage in readers)}")
    dead_letters = select("skewless_produced_records_total", topic="dead-letters")
    late = total(rate(select("skewless_produced_records_total", topic="late")))
    counted = total(rate(select("skewless_tuples_total", stage=SOURCE_STAGE)))
    aborted = select("skewless_transactions_total", outcome="aborted")
    latencies = select("skewless_end_to_end_latency_seconds_bucket")
    complete = select("skewless_watermark_timestamp_seconds", stage="aggregator")
    # Without aggregators, the age grows. A partition may have been at several processes before.
    last_complete = maximum(f"last_over_time({complete}[1h])", "cluster", "namespace", "pipeline", "partition")
    return [
        stat_panel(
            PanelDescription(
                "Age of the results",
                "Now minus the event time up to which results are complete. For recorded data, the age of the data.",
                "s",
                4,
                4,
            ),
            Query(f"time() - ({minimum(complete)} or {minimum(last_complete)})", "age"),
            limits=(600, 3600),
        ),
        stat_panel(
            PanelDescription(
                "End-to-end latency", "From splitter to aggregator: the 99th percentile of all commits.", "s", 4, 4
            ),
            Query(quantile(0.99, latencies), "p99"),
            limits=(10, 30),
        ),
        stat_panel(
            PanelDescription(
                "Late share",
                "Tuples whose window had closed before, as a share of all. They are in `late`, and not in results.",
                "percentunit",
                4,
                4,
            ),
            Query(f"{late} / ({late} + {counted} > 0)", "late"),
            limits=(0.01, 0.05),
        ),
        most_loaded_panel(" See the dashboard *Load balance*."),
        stat_panel(
            PanelDescription(
                "Lag in time", "Age of the oldest record that is not processed. Results have none.", "s", 4, 4
            ),
            Query(maximum(select("skewless_consumer_lag_seconds")), "lag"),
            limits=(60, 600),
        ),
        stat_panel(
            PanelDescription(
                "Processes", "Processes that Prometheus can scrape, and how many of them are ready.", "short", 4, 4
            ),
            # A process that runs several stages is ready when all of them are.
            Query(f"sum(min by ({PROCESS}) ({select('skewless_ready')})) or vector(0)", "ready"),
            Query(f"count(group by ({PROCESS}) ({select('skewless_build_info')})) or vector(0)", "running"),
        ),
        stat_panel(
            PanelDescription("Records in", "Records of your topics processed per second.", "cps", 6, 4),
            Query(" or ".join(records_in), "in"),
        ),
        stat_panel(
            PanelDescription(
                "Lag at the source",
                "Records of your topics, and of a join or enrichment before the splitter, that are not yet processed.",
                "short",
                6,
                4,
            ),
            Query(total(lag_in), "lag"),
        ),
        stat_panel(
            PanelDescription("Dead letters", "Records that stages refused, in the time range.", "short", 6, 4),
            Query(growth(dead_letters), "dead letters"),
            limits=(1, 100),
        ),
        stat_panel(
            PanelDescription(
                "Aborted transactions",
                "Failed commits in the time range. Their records are processed again.",
                "short",
                6,
                4,
            ),
            Query(growth(aborted), "aborted"),
            limits=(1, 10),
        ),
        line_panel(
            PanelDescription(
                "Tuples by stage",
                "Tuples of the pipeline that each stage processes per second. The first stage with a lower line is the"
                " bottleneck.",
                "cps",
            ),
            Query(total(rate(select("skewless_tuples_total", stage=f"~{COUNT_TUPLES}")), "stage"), "{{stage}}"),
        ),
        line_panel(
            PanelDescription(
                "Lag by stage", "Input records of each stage that are not yet processed and committed.", "short"
            ),
            Query(total(select("skewless_consumer_lag_records"), "stage"), "{{stage}}"),
        ),
        line_panel(
            PanelDescription(
                "Watermark delay by stage",
                "Largest event time of a stage minus the lowest watermark of its partitions. Stages after the router"
                " have the event times of panes, so the difference may be negative by the length of a pane.",
                "s",
            ),
            Query(maximum(watermark_delay(), "stage"), "{{stage}}"),
            lowest=None,
        ),
        line_panel(
            PanelDescription(
                "Memory by stage",
                "Resident memory of the processes. That of a process with all stages is shown for each of them.",
                "bytes",
            ),
            Query(total(with_stage_label(MEMORY), "stage"), "{{stage}}"),
        ),
        line_panel(
            PanelDescription(
                "Allocated blocks by stage", "Memory blocks allocated by Python. Steady growth is a leak.", "short"
            ),
            Query(total(select("skewless_allocated_blocks"), "stage"), "{{stage}}"),
        ),
        line_panel(
            PanelDescription(
                "Lag in time by stage",
                "Age of the oldest record of each stage that is not processed. Stages that read results have none.",
                "s",
            ),
            Query(maximum(select("skewless_consumer_lag_seconds"), "stage"), "{{stage}}"),
        ),
        line_panel(
            PanelDescription(
                "Busy time by stage",
                "Share of the time in which the busiest process of a stage processes. Near 100 % it is the bottleneck.",
                "percentunit",
            ),
            Query(maximum(rate(select("skewless_time_seconds_total", state="busy")), "stage"), "{{stage}}"),
        ),
        line_panel(
            PanelDescription(
                "End-to-end latency over time", "From splitter to aggregator: median and 99th percentile.", "s"
            ),
            Query(quantile(0.5, latencies), "p50"),
            Query(quantile(0.99, latencies), "p99"),
        ),
    ]
