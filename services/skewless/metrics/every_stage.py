"""Metrics that every stage shows: what went through it, how long it took, and how its place in Kafka is."""

from __future__ import annotations

from skewless.metrics.base import SECONDS, Metric

PROCESS = (
    Metric("skewless_build_info", "gauge", ("version",), "info", "Always 1; the label is the version of Skewless."),
    Metric(
        "skewless_start_time_seconds",
        "gauge",
        (),
        "seconds",
        "When this process was started, since the epoch: a change of it is a restart.",
    ),
    Metric(
        "skewless_allocated_blocks",
        "gauge",
        (),
        "blocks",
        "Memory blocks that Python's allocator holds. State and load move it; growth over hours at a steady load and"
        " state is a leak of Python objects, whatever process_resident_memory_bytes says.",
    ),
    Metric("skewless_ready", "gauge", (), "0 or 1", "1 when /readyz says yes, else 0."),
    Metric(
        "skewless_recoveries_total",
        "counter",
        ("kind",),
        "recoveries",
        "What this process mended by itself. rewind: it aborted and read again from what was committed; producer: it"
        " replaced its producer.",
    ),
    Metric(
        "skewless_rebalances_total",
        "counter",
        ("event",),
        "rebalances",
        "What the group told this process: partitions assigned, revoked, or lost without having been asked.",
    ),
)

TRAFFIC = (
    Metric("skewless_input_records_total", "counter", (), "records", "Kafka records read and processed."),
    Metric("skewless_input_bytes_total", "counter", (), "bytes", "Bytes of their values."),
    Metric(
        "skewless_output_records_total",
        "counter",
        ("topic",),
        "records",
        "Kafka records written, by topic of the pipeline: late tuples and dead letters have theirs.",
    ),
    Metric("skewless_output_bytes_total", "counter", ("topic",), "bytes", "Bytes of their values."),
    Metric(
        "skewless_tuples_total",
        "counter",
        (),
        "tuples",
        "Tuples taken in; those that are late are not counted. The same for every stage that is up to date.",
    ),
    Metric(
        "skewless_batch_seconds",
        "histogram",
        (),
        "seconds",
        "Time to process one batch and hand over what it gave; its count is the number of batches.",
        buckets=SECONDS,
    ),
    Metric(
        "skewless_commit_seconds",
        "histogram",
        (),
        "seconds",
        "Time of a commit, from closing the gate to opening it again, failed ones too. One is due at every"
        " transport.commit_interval_s, also with nothing to commit: a count that stands still is a process that hangs.",
        buckets=SECONDS,
    ),
    Metric(
        "skewless_transactions_total",
        "counter",
        ("outcome",),
        "transactions",
        "Commits, by outcome: committed or aborted.",
    ),
    Metric("skewless_waiting_batches", "gauge", (), "batches", "Batches read and not yet processed."),
    Metric(
        "skewless_restore_seconds",
        "histogram",
        (),
        "seconds",
        "Time to take partitions over: committed offsets, and state from the changelog.",
        buckets=SECONDS,
    ),
    Metric("skewless_restored_records_total", "counter", (), "records", "Changelog records that state was taken from."),
)

PARTITIONS = (
    Metric(
        "skewless_assigned_partitions",
        "gauge",
        ("state",),
        "partitions",
        "Partitions that this process has, by how event time goes on in them: active, idle, ended, or unknown while an"
        " origin has not spoken.",
    ),
    Metric(
        "skewless_lag_records",
        "gauge",
        ("partition",),
        "records",
        "Records of the stage's topic that were not yet processed at the last commit; commits' markers are none.",
    ),
    Metric("skewless_committed_offset", "gauge", ("partition",), "offset", "Next offset as committed."),
    Metric(
        "skewless_watermark_seconds",
        "gauge",
        ("partition",),
        "seconds",
        "Event time to which a partition is complete, since the epoch; not shown while it is idle, ended or unknown.",
    ),
    Metric(
        "skewless_event_time_seconds",
        "gauge",
        ("partition",),
        "seconds",
        "Newest event time that a partition has brought, since the epoch. The newest of all partitions of a stage minus"
        " a partition's watermark is that partition's delay, for replays too; the clock minus it is the age of the"
        " newest data, for live sources. Behind the router it is the start of a pane.",
    ),
)

EVERY_STAGE = (*PROCESS, *TRAFFIC, *PARTITIONS)
