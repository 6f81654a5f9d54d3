"""The dashboard of one stage: throughput, progress, time and resources. The user chooses among those that run."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.generate.dashboard import Dashboard, Row
from dashboards.generate.panels import Panel, PanelDescription, Query, line_panel
from dashboards.generate.promql import (
    CPU,
    MEMORY,
    maximum,
    quantile,
    rate,
    select,
    total,
    watermark_delay,
    with_stage_label,
)

STAGE = "~$stage"
"""Matches the stage that is selected above the dashboard."""


def stage() -> Dashboard:
    """Return the dashboard."""
    return Dashboard(
        "skewless-stage",
        "Skewless / Stage",
        "Throughput, progress, time and resources of one stage of a pipeline.",
        [
            Row("Throughput", list(_throughput_panels())),
            Row("Progress", list(_progress_panels())),
            Row("Time and queues", list(_time_panels())),
            Row("Processes", list(_process_panels())),
        ],
        of_stage=True,
    )


def _time_panels() -> Iterator[Panel]:
    processes = total(select("skewless_build_info", stage=STAGE))
    times = total(rate(select("skewless_time_seconds_total", stage=STAGE)), "state")
    yield line_panel(
        PanelDescription(
            "Time by state",
            "Share of the time in which the processes are busy, back-pressured (they wait for the output), restoring or"
            " idle, on average. A stage that is busy all the time is a bottleneck.",
            "percentunit",
        ),
        Query(f"{times} / scalar({processes})", "{{state}}"),
        stacked=True,
    )
    lag = maximum(select("skewless_consumer_lag_seconds", stage=STAGE), "partition")
    yield line_panel(
        PanelDescription(
            "Lag in time",
            "Age of the oldest record that is not processed, in the five partitions with the largest lag.",
            "s",
        ),
        Query(f"topk(5, {lag})", "partition {{partition}}"),
    )
    yield line_panel(
        PanelDescription(
            "Queues of librdkafka", "Bytes fetched and not yet read, or produced and not yet acknowledged.", "bytes"
        ),
        Query(total(select("skewless_client_queue_bytes", stage=STAGE), "client"), "{{client}}"),
    )
    throttled = rate(select("skewless_client_throttle_seconds_total", stage=STAGE))
    yield line_panel(
        PanelDescription(
            "Throttling",
            "Share of the time for which brokers throttle the clients of the most throttled process. The shares of"
            " several brokers add up.",
            "percentunit",
        ),
        Query(maximum(throttled, "client"), "{{client}}"),
    )


def _throughput_panels() -> Iterator[Panel]:
    """Yield the panels of the input and of the output."""
    records, tuples = (
        select("skewless_consumed_records_total", stage=STAGE),
        select("skewless_tuples_total", stage=STAGE),
    )
    out = select("skewless_produced_records_total", stage=STAGE)
    bytes_in, bytes_out = (
        select("skewless_consumed_bytes_total", stage=STAGE),
        select("skewless_produced_bytes_total", stage=STAGE),
    )
    yield line_panel(
        PanelDescription(
            "In and out",
            "Kafka records read, tuples in them, and records written by topic, per second. The tuples of sink, ranksink"
            " and mirror are always 0.",
            "cps",
        ),
        Query(total(rate(records)), "records in"),
        Query(total(rate(tuples)), "tuples in"),
        Query(total(rate(out), "topic"), "to {{topic}}"),
    )
    yield line_panel(
        PanelDescription("Bytes", "Bytes of the values of these records, per second.", "Bps"),
        Query(total(rate(bytes_in)), "in"),
        Query(total(rate(bytes_out), "topic"), "to {{topic}}"),
    )
    batches = select("skewless_batch_duration_seconds_bucket", stage=STAGE)
    commits = select("skewless_commit_duration_seconds_bucket", stage=STAGE)
    yield line_panel(
        PanelDescription("Time of a batch", "Time to process one batch: median and 99th percentile.", "s"),
        Query(quantile(0.5, batches), "p50"),
        Query(quantile(0.99, batches), "p99"),
    )
    yield line_panel(
        PanelDescription(
            "Time of a commit", "Time to commit a transaction. The stage processes nothing meanwhile.", "s"
        ),
        Query(quantile(0.5, commits), "p50"),
        Query(quantile(0.99, commits), "p99"),
    )


def _progress_panels() -> Iterator[Panel]:
    yield line_panel(
        PanelDescription("Batches and commits", "Batches processed and commits, per second.", "cps"),
        Query(total(rate(select("skewless_batch_duration_seconds_count", stage=STAGE))), "batches"),
        Query(total(rate(select("skewless_commit_duration_seconds_count", stage=STAGE))), "commits"),
    )
    lag = total(select("skewless_consumer_lag_records", stage=STAGE), "partition")
    yield line_panel(
        PanelDescription(
            "Lag by partition",
            "Records not yet processed and committed, in the five partitions with the largest lag.",
            "short",
        ),
        Query(f"topk(5, {lag})", "partition {{partition}}"),
    )
    yield line_panel(
        PanelDescription(
            "Watermark delay",
            "Largest event time of the stage minus the watermark of a partition, for the five largest differences."
            " Stages that read public topics have none. Stages after the router have the event times of panes, so the"
            " difference may be negative by the length of a pane.",
            "s",
        ),
        Query(f"topk(5, {maximum(watermark_delay(stage=STAGE), 'partition')})", "partition {{partition}}"),
        lowest=None,
    )
    aborted = select("skewless_transactions_total", stage=STAGE, outcome="aborted")
    recoveries = select("skewless_recoveries_total", stage=STAGE)
    rebalances = select("skewless_rebalances_total", stage=STAGE)
    yield line_panel(
        PanelDescription(
            "Troubles", "Failed commits, recoveries, and partitions assigned, revoked or lost, per second.", "cps"
        ),
        Query(total(rate(aborted)), "aborted"),
        Query(total(rate(recoveries), "type"), "recovered by {{type}}"),
        Query(total(rate(rebalances), "event"), "partitions {{event}}"),
    )


def _process_panels() -> Iterator[Panel]:
    states = select("skewless_assigned_partitions", stage=STAGE)
    yield line_panel(
        PanelDescription(
            "Partitions by state",
            "Assigned partitions, by the state of their event time. Stages without watermarks (enricher, sink, ranksink"
            " and mirror) have unknown ones only.",
            "short",
        ),
        Query(total(states, "state"), "{{state}}"),
    )
    yield line_panel(
        PanelDescription(
            "Waiting and restoring",
            "Batches in flight, records in the queues of librdkafka, changelog records read per second, and what"
            " remains of restores in progress.",
            "short",
        ),
        Query(total(select("skewless_in_flight_batches", stage=STAGE)), "batches in flight"),
        Query(total(select("skewless_client_queue_records", stage=STAGE), "client"), "records of the {{client}}"),
        Query(total(rate(select("skewless_restored_records_total", stage=STAGE))), "records restored"),
        Query(total(select("skewless_restore_remaining_records", stage=STAGE)), "records remaining"),
        Query(total(rate(select("skewless_restore_duration_seconds_count", stage=STAGE))), "restores"),
    )
    yield line_panel(
        PanelDescription("CPU by process", "CPU time of each process, as a share of one core.", "percentunit"),
        Query(with_stage_label(rate(CPU), STAGE), "{{instance}}"),
    )
    yield line_panel(
        PanelDescription("Memory by process", "Resident memory of each process.", "bytes"),
        Query(with_stage_label(MEMORY, STAGE), "{{instance}}"),
    )
