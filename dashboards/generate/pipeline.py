"""The dashboard of a whole pipeline: an overview, then the same panels for each stage, in the order of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dashboards.generate.balance import most_loaded_panel
from dashboards.generate.dashboard import Dashboard, Event, Row
from dashboards.generate.panels import Panel, PanelDescription, Query, line_panel, stat_panel
from dashboards.generate.promql import WHERE, maximum, minimum, quantile, rate, select, total
from dashboards.generate.units import TIMESTAMPS, unit
from skewless.monitoring.metrics import METRICS, Metric
from skewless.topology import STAGES, TOPICS, Stage

OF_PROCESSES = f'{WHERE}, instance=~"$instance"'
"""Matchers of the metrics of the operating system process, which have no label `pipeline`."""
PROCESS = "cluster, namespace, job, instance"
"""Labels of a process."""
CPU = f"process_cpu_seconds_total{{{OF_PROCESSES}}}"
MEMORY = f"process_resident_memory_bytes{{{OF_PROCESSES}}}"
PUBLIC_TOPICS = {topic.name for topic in TOPICS if topic.public}
"""Topics without watermarks."""
STARTED = (
    f"time() - process_start_time_seconds{{{OF_PROCESSES}}} "
    f"* on ({PROCESS}) group_right () {select('skewless_build_info')} < 60"
)


def pipeline(stages: Sequence[Stage] = STAGES, metrics: Sequence[Metric] = METRICS) -> Dashboard:
    """Return the dashboard of these stages. `metrics` are shown in the rows of the stages that have them."""
    rows = [Row("Pipeline", overview(stages))]
    for stage in stages:
        condition = f" (where {stage.option})" if stage.option else ""
        title = f"{stage.name}: {stage.description}{condition}"
        rows.append(Row(title, list(common_panels(stage)), folded=True))
        if specific_panels := [metric_panel(metric, stage) for metric in metrics if stage.name in metric.stages]:
            rows.append(Row(f"{stage.name}: its own metrics", specific_panels, folded=True))
    return Dashboard(
        "skewless-pipeline",
        "Skewless / Pipeline",
        "Progress and health of a pipeline, stage by stage in the order of the data.",
        rows,
        events=[Event("Starts", STARTED, "{{stage}} {{instance}} started", "red")],
    )


def overview(stages: Sequence[Stage]) -> list[Panel]:
    """Return the panels of the overview row."""
    source_stage = next(stage.name for stage in stages if "source" in stage.inputs)
    dead_letters = select("skewless_produced_records_total", topic="dead-letters")
    late = total(rate(select("skewless_produced_records_total", topic="late")))
    counted = total(rate(select("skewless_tuples_total", stage=source_stage)))
    aborted = select("skewless_transactions_total", outcome="aborted")
    latencies = select("skewless_end_to_end_latency_seconds_bucket")
    return [
        stat_panel(
            PanelDescription(
                "Age of the results",
                "Now minus the event time up to which results are complete. For recorded data, the age of the data.",
                "s",
                4,
                4,
            ),
            Query(f"time() - {minimum(select('skewless_watermark_timestamp_seconds', stage='aggregator'))}", "age"),
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
            PanelDescription("Lag in time", "Age of the oldest record of any stage that is not processed.", "s", 4, 4),
            Query(maximum(select("skewless_consumer_lag_seconds")), "lag"),
            limits=(60, 600),
        ),
        stat_panel(
            PanelDescription(
                "Processes", "Processes that Prometheus can scrape, and how many of them are ready.", "short", 4, 4
            ),
            # A process that runs several stages is ready when all of them are.
            Query(f"sum(min by ({PROCESS}) ({select('skewless_ready')}))", "ready"),
            Query(f"count(group by ({PROCESS}) ({select('skewless_build_info')}))", "running"),
        ),
        stat_panel(
            PanelDescription("Records in", "Source records processed per second.", "cps", 6, 4),
            Query(total(rate(select("skewless_consumed_records_total", stage=source_stage))), "in"),
        ),
        stat_panel(
            PanelDescription(
                "Lag at the source", "Source records that are not yet processed and committed.", "short", 6, 4
            ),
            Query(total(select("skewless_consumer_lag_records", stage=source_stage)), "lag"),
        ),
        stat_panel(
            PanelDescription("Dead letters", "Records that could not be parsed, in the time range.", "short", 6, 4),
            Query(total(f"increase({dead_letters}[$__range])"), "dead letters"),
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
            Query(total(f"increase({aborted}[$__range])"), "aborted"),
            limits=(1, 10),
        ),
        line_panel(
            PanelDescription(
                "Tuples by stage",
                "Tuples processed per second. The stage with the lowest line is the bottleneck.",
                "cps",
            ),
            Query(total(rate(select("skewless_tuples_total")), "stage"), "{{stage}}"),
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
                "Largest event time of a stage minus the lowest watermark of its partitions.",
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
                "Lag in time by stage", "Age of the oldest record of each stage that is not processed.", "s"
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


def common_panels(stage: Stage) -> Iterator[Panel]:
    """Yield the panels that every stage has."""
    yield from _throughput_panels(stage.name, produces=bool(stage.outputs))
    yield from _progress_panels(stage.name, has_watermarks=not set(stage.inputs) <= PUBLIC_TOPICS)
    yield from _time_panels(stage.name)
    yield from _process_panels(stage.name)


def _time_panels(stage: str) -> Iterator[Panel]:
    processes = total(select("skewless_build_info", stage=stage))
    times = total(rate(select("skewless_time_seconds_total", stage=stage)), "state")
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
    lag = maximum(select("skewless_consumer_lag_seconds", stage=stage), "partition")
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
        Query(total(select("skewless_client_queue_bytes", stage=stage), "client"), "{{client}}"),
    )
    yield line_panel(
        PanelDescription(
            "Throttling and queued records",
            "Share of the time for which brokers throttle the clients, and records in the queues of librdkafka.",
            "short",
        ),
        Query(
            total(rate(select("skewless_client_throttle_seconds_total", stage=stage)), "client"), "{{client}} throttled"
        ),
        Query(total(select("skewless_client_queue_records", stage=stage), "client"), "{{client}} records"),
    )


def _throughput_panels(stage: str, *, produces: bool) -> Iterator[Panel]:
    """Yield the panels of the input, and of the output of a stage that writes to topics."""
    records, tuples = (
        select("skewless_consumed_records_total", stage=stage),
        select("skewless_tuples_total", stage=stage),
    )
    out = select("skewless_produced_records_total", stage=stage)
    bytes_in, bytes_out = (
        select("skewless_consumed_bytes_total", stage=stage),
        select("skewless_produced_bytes_total", stage=stage),
    )
    content = "tuples in them, and records written by topic" if produces else "and tuples in them"
    yield line_panel(
        PanelDescription("In and out", f"Kafka records read, {content}, per second.", "cps"),
        Query(total(rate(records)), "records in"),
        Query(total(rate(tuples)), "tuples in"),
        *([Query(total(rate(out), "topic"), "to {{topic}}")] if produces else []),
    )
    yield line_panel(
        PanelDescription("Bytes", "Bytes of the values of these records, per second.", "Bps"),
        Query(total(rate(bytes_in)), "in"),
        *([Query(total(rate(bytes_out), "topic"), "to {{topic}}")] if produces else []),
    )
    batches = select("skewless_batch_duration_seconds_bucket", stage=stage)
    commits = select("skewless_commit_duration_seconds_bucket", stage=stage)
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


def _progress_panels(stage: str, *, has_watermarks: bool) -> Iterator[Panel]:
    yield line_panel(
        PanelDescription("Batches and commits", "Batches processed and commits, per second.", "cps"),
        Query(total(rate(select("skewless_batch_duration_seconds_count", stage=stage))), "batches"),
        Query(total(rate(select("skewless_commit_duration_seconds_count", stage=stage))), "commits"),
    )
    lag = total(select("skewless_consumer_lag_records", stage=stage), "partition")
    yield line_panel(
        PanelDescription(
            "Lag by partition",
            "Records not yet processed and committed, in the five partitions with the largest lag.",
            "short",
        ),
        Query(f"topk(5, {lag})", "partition {{partition}}"),
    )
    if has_watermarks:
        yield line_panel(
            PanelDescription(
                "Watermark delay",
                "Largest event time of the stage minus the watermark of a partition, for the five largest differences.",
                "s",
            ),
            Query(f"topk(5, {maximum(watermark_delay(stage=stage), 'partition')})", "partition {{partition}}"),
            lowest=None,
        )
    aborted = select("skewless_transactions_total", stage=stage, outcome="aborted")
    recoveries = select("skewless_recoveries_total", stage=stage)
    rebalances = select("skewless_rebalances_total", stage=stage)
    yield line_panel(
        PanelDescription(
            "Troubles", "Failed commits, recoveries, and partitions assigned, revoked or lost, per second.", "cps"
        ),
        Query(total(rate(aborted)), "aborted"),
        Query(total(rate(recoveries), "type"), "recovered by {{type}}"),
        Query(total(rate(rebalances), "event"), "partitions {{event}}"),
    )


def _process_panels(stage: str) -> Iterator[Panel]:
    states = select("skewless_assigned_partitions", stage=stage)
    yield line_panel(
        PanelDescription("Partitions by state", "Assigned partitions, by the state of their event time.", "short"),
        Query(total(states, "state"), "{{state}}"),
    )
    yield line_panel(
        PanelDescription(
            "Waiting and restoring",
            "Batches in flight, changelog records read per second, and what remains of restores in progress.",
            "short",
        ),
        Query(total(select("skewless_in_flight_batches", stage=stage)), "batches in flight"),
        Query(total(rate(select("skewless_restored_records_total", stage=stage))), "records restored"),
        Query(total(select("skewless_restore_remaining_records", stage=stage)), "records remaining"),
        Query(total(rate(select("skewless_restore_duration_seconds_count", stage=stage))), "restores"),
    )
    yield line_panel(
        PanelDescription("CPU by process", "CPU time of each process, as a share of one core.", "percentunit"),
        Query(with_stage_label(rate(CPU), stage), "{{instance}}"),
    )
    yield line_panel(
        PanelDescription("Memory by process", "Resident memory of each process.", "bytes"),
        Query(with_stage_label(MEMORY, stage), "{{instance}}"),
    )


def metric_panel(metric: Metric, stage: Stage) -> Panel:
    """Return the panel of a stage-specific metric, with the text and unit of the list of metrics."""
    short_name = metric.name.removeprefix(f"skewless_{stage.name}_").removesuffix("_total").removesuffix("_ratio")
    description = PanelDescription(short_name.replace("_", " ").capitalize(), metric.meaning, unit(metric))
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or short_name.replace("_", " ")
    if metric.kind == "histogram":
        return line_panel(description, Query(quantile(0.99, select(f"{metric.name}_bucket", stage=stage.name)), "p99"))
    selector = select(metric.name, stage=stage.name)
    if metric.kind == "counter":
        return line_panel(description, Query(total(rate(selector), *metric.labels), legend))
    value = (
        f"{maximum(selector, *metric.labels)} * 1000"
        if metric.name in TIMESTAMPS
        else maximum(selector, *metric.labels)
    )
    return line_panel(description, Query(value, legend), lowest=None if metric.name in TIMESTAMPS else 0)


def watermark_delay(**stage: str) -> str:
    """Return the watermark delay of each partition: the stage's largest event time minus the partition's watermark."""
    of_stage = ("cluster", "namespace", "pipeline", "stage")
    # The largest event time of a partition that lags is old itself, so that of the whole stage is used.
    max_event_time = maximum(select("skewless_max_event_timestamp_seconds", **stage), *of_stage)
    watermark = select("skewless_watermark_timestamp_seconds", **stage)
    return f"{max_event_time} - on ({', '.join(of_stage)}) group_right () {watermark}"


def with_stage_label(value: str, stage: str = "") -> str:
    """Add the label `stage` to a metric of the operating system process, such as CPU time, for each stage it runs."""
    info = select("skewless_build_info", stage=stage) if stage else select("skewless_build_info")
    return f"{value} * on ({PROCESS}) group_right () {info}"
