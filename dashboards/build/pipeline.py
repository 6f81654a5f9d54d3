"""The dashboard of a whole pipeline: how it is, then the same panels for every stage, in the order of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dashboards.build.frame import Dashboard, Event, Row
from dashboards.build.panels import About, Panel, Query, lines, number
from dashboards.build.promql import most, of, quantile, rate, total
from dashboards.build.units import MOMENTS, unit
from skewless.metrics import METRICS, Metric
from skewless.topology import STAGES, Stage

CPU = 'process_cpu_seconds_total{job=~"$job", instance=~"$instance"}'
MEMORY = 'process_resident_memory_bytes{job=~"$job", instance=~"$instance"}'
STARTED = f"time() - {of('skewless_start_time_seconds')} < 60"


def pipeline(stages: Sequence[Stage] = STAGES, metrics: Sequence[Metric] = METRICS) -> Dashboard:
    """Describe the dashboard for these stages, and these metrics of single stages."""
    rows = [Row("Pipeline", overview(stages))]
    for stage in stages:
        rows.append(Row(f"{stage.name}: {stage.does}", list(of_stage(stage))))
        if own := [own_metric(metric, stage) for metric in metrics if stage.name in metric.stages]:
            rows.append(Row(f"{stage.name}: what it alone tells", own, folded=True))
    return Dashboard(
        "skewless-pipeline",
        "Skewless / Pipeline",
        "How far a pipeline is, stage by stage in the order of the data.",
        rows,
        events=[Event("Starts", STARTED, "{{stage}} {{instance}} was started", "red")],
    )


def overview(stages: Sequence[Stage]) -> list[Panel]:
    """Say in one row whether all is well."""
    first = next(stage.name for stage in stages if stage.source == "source")
    letters = of("skewless_output_records_total", topic="dead-letters")
    late = of("skewless_output_records_total", topic="late")
    aborted = of("skewless_transactions_total", outcome="aborted")
    return [
        number(
            About("Processes", "Processes that answer, and how many of them are ready.", "short", 4, 4),
            Query(total(of("skewless_ready")), "ready"),
            Query(f"count({of('skewless_build_info')})", "running"),
        ),
        number(
            About("Records in", "Records of the source that are processed, per second.", "cps", 4, 4),
            Query(total(rate(of("skewless_input_records_total", stage=first))), "in"),
        ),
        number(
            About(
                "Lag at the source", "Records of the source that are not yet processed and committed.", "short", 4, 4
            ),
            Query(total(of("skewless_lag_records", stage=first)), "lag"),
        ),
        number(
            About("Late tuples", "Tuples per second that come later than is allowed; they go to `late`.", "cps", 4, 4),
            Query(total(rate(late)), "late"),
        ),
        number(
            About("Dead letters", "Records that could not be read, in the time shown.", "short", 4, 4),
            Query(total(f"increase({letters}[$__range])"), "dead letters"),
            limits=(1, 100),
        ),
        number(
            About(
                "Aborted transactions", "Commits that failed, in the time shown; their work is repeated.", "short", 4, 4
            ),
            Query(total(f"increase({aborted}[$__range])"), "aborted"),
            limits=(1, 10),
        ),
        lines(
            About("Tuples by stage", "Tuples taken in per second: where the line is lower, the way is narrow.", "cps"),
            Query(total(rate(of("skewless_tuples_total")), "stage"), "{{stage}}"),
        ),
        lines(
            About("Lag by stage", "Records not yet processed and committed, in front of each stage.", "short"),
            Query(total(of("skewless_lag_records"), "stage"), "{{stage}}"),
        ),
        lines(
            About(
                "Watermark delay by stage",
                "Newest event time of a stage minus the watermark of its partition that is furthest behind.",
                "s",
            ),
            Query(most(delay(), "stage"), "{{stage}}"),
            lowest=None,
        ),
        lines(
            About("Memory by stage", "Resident memory of the processes.", "bytes"),
            Query(total(process(MEMORY), "stage"), "{{stage}}"),
        ),
        lines(
            About("Allocated blocks by stage", "Python objects in memory: steady growth is a leak.", "short"),
            Query(total(of("skewless_allocated_blocks"), "stage"), "{{stage}}"),
        ),
    ]


def of_stage(stage: Stage) -> Iterator[Panel]:
    """Draw what is the same for every stage."""
    yield from _work(stage.name)
    yield from _place(stage.name)
    yield from _process(stage.name)


def _work(stage: str) -> Iterator[Panel]:
    records, tuples = of("skewless_input_records_total", stage=stage), of("skewless_tuples_total", stage=stage)
    out = of("skewless_output_records_total", stage=stage)
    bytes_in, bytes_out = of("skewless_input_bytes_total", stage=stage), of("skewless_output_bytes_total", stage=stage)
    yield lines(
        About("In and out", "Kafka records read, tuples in them, and records written by topic, per second.", "cps"),
        Query(total(rate(records)), "records in"),
        Query(total(rate(tuples)), "tuples in"),
        Query(total(rate(out), "topic"), "to {{topic}}"),
    )
    yield lines(
        About("Bytes", "Bytes of the values of these records per second.", "Bps"),
        Query(total(rate(bytes_in)), "in"),
        Query(total(rate(bytes_out), "topic"), "to {{topic}}"),
    )
    batches = of("skewless_batch_seconds_bucket", stage=stage)
    commits = of("skewless_commit_seconds_bucket", stage=stage)
    yield lines(
        About("Time of a batch", "Time to process one batch: the middle one, and the slowest hundredth.", "s"),
        Query(quantile(0.5, batches), "p50"),
        Query(quantile(0.99, batches), "p99"),
    )
    yield lines(
        About("Time of a commit", "Time of a transaction's commit, in which the stage stands still.", "s"),
        Query(quantile(0.5, commits), "p50"),
        Query(quantile(0.99, commits), "p99"),
    )


def _place(stage: str) -> Iterator[Panel]:
    yield lines(
        About("Batches and commits", "Batches processed and transactions ended, per second.", "cps"),
        Query(total(rate(of("skewless_batch_seconds_count", stage=stage))), "batches"),
        Query(total(rate(of("skewless_commit_seconds_count", stage=stage))), "commits"),
    )
    lag = total(of("skewless_lag_records", stage=stage), "partition")
    yield lines(
        About("Lag by partition", "Records not yet processed and committed, in the five worst partitions.", "short"),
        Query(f"topk(5, {lag})", "partition {{partition}}"),
    )
    yield lines(
        About(
            "Watermark delay",
            "Newest event time of the stage minus a partition's watermark, in the five partitions furthest behind.",
            "s",
        ),
        Query(f"topk(5, {most(delay(stage=stage), 'partition')})", "partition {{partition}}"),
        lowest=None,
    )
    aborted = of("skewless_transactions_total", stage=stage, outcome="aborted")
    recoveries = of("skewless_recoveries_total", stage=stage)
    rebalances = of("skewless_rebalances_total", stage=stage)
    yield lines(
        About("Troubles", "Commits that failed, what was mended, and partitions that moved, per second.", "cps"),
        Query(total(rate(aborted)), "aborted"),
        Query(total(rate(recoveries), "kind"), "mended by {{kind}}"),
        Query(total(rate(rebalances), "event"), "partitions {{event}}"),
    )


def _process(stage: str) -> Iterator[Panel]:
    states = of("skewless_assigned_partitions", stage=stage)
    yield lines(
        About("Partitions by state", "Partitions owned, by how event time goes on in them.", "short"),
        Query(total(states, "state"), "{{state}}"),
    )
    yield lines(
        About(
            "Waiting and restoring", "Batches read and not yet processed; changelog records read per second.", "short"
        ),
        Query(total(of("skewless_waiting_batches", stage=stage)), "batches that wait"),
        Query(total(rate(of("skewless_restored_records_total", stage=stage))), "records restored"),
        Query(total(rate(of("skewless_restore_seconds_count", stage=stage))), "times restored"),
    )
    yield lines(
        About("CPU by process", "Share of one core that each process uses.", "percentunit"),
        Query(process(rate(CPU), stage), "{{instance}}"),
    )
    yield lines(
        About("Memory by process", "Resident memory of each process.", "bytes"),
        Query(process(MEMORY, stage), "{{instance}}"),
    )


def own_metric(metric: Metric, stage: Stage) -> Panel:
    """Draw a metric of one stage as the list describes it."""
    words = metric.name.removeprefix(f"skewless_{stage.name}_").removesuffix("_total").removesuffix("_ratio")
    about = About(words.replace("_", " ").capitalize(), metric.meaning, unit(metric))
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or words.replace("_", " ")
    if metric.kind == "histogram":
        return lines(about, Query(quantile(0.99, of(f"{metric.name}_bucket", stage=stage.name)), "p99"))
    selected = of(metric.name, stage=stage.name)
    if metric.kind == "counter":
        return lines(about, Query(total(rate(selected), *metric.labels), legend))
    value = f"{most(selected, *metric.labels)} * 1000" if metric.name in MOMENTS else most(selected, *metric.labels)
    return lines(about, Query(value, legend), lowest=None if metric.name in MOMENTS else 0)


def delay(**stage: str) -> str:
    """Take the newest event time of all partitions of a stage: that of a partition far behind is old itself."""
    newest = most(of("skewless_event_time_seconds", **stage), "pipeline", "stage")
    return f"{newest} - on (pipeline, stage) group_right () {of('skewless_watermark_seconds', **stage)}"


def process(value: str, stage: str = "") -> str:
    """Give what the operating system knows of a process the labels of what the process says of itself."""
    info = of("skewless_build_info", stage=stage) if stage else of("skewless_build_info")
    return f"{value} * on (job, instance) group_left (stage) {info}"
