"""Metrics of every stage: the process, its throughput and durations, and its partitions."""

from __future__ import annotations

from skewless.metric_definition import RESTORE_SECONDS, SECONDS, Metric

PROCESS = (
    Metric("skewless_build_info", "gauge", ("version",), "info", "Always 1; the label is the version of Skewless."),
    Metric(
        "skewless_allocated_blocks",
        "gauge",
        (),
        "blocks",
        "Memory blocks that Python's allocator holds. They vary with state and load. Growth over hours at constant load"
        " and state is a leak of Python objects, independent of process_resident_memory_bytes.",
    ),
    Metric(
        "skewless_memory_limit_bytes",
        "gauge",
        (),
        "bytes",
        "Memory that the process may use: the limit of its container, or the memory of the machine. Compare it with"
        " process_resident_memory_bytes.",
    ),
    Metric("skewless_ready", "gauge", (), "0 or 1", "1 if /readyz reports ready, else 0."),
    Metric(
        "skewless_recoveries_total",
        "counter",
        ("type",),
        "recoveries",
        "Recoveries from errors. transaction_abort: the process aborted the transaction and reset to the committed"
        " offsets; producer_replacement: it replaced its producer.",
    ),
    Metric(
        "skewless_rebalances_total",
        "counter",
        ("event",),
        "rebalances",
        "Rebalance callbacks of this process: partitions assigned, revoked, or lost without a prior revocation.",
    ),
)

TRAFFIC = (
    Metric("skewless_consumed_records_total", "counter", (), "records", "Kafka records consumed and processed."),
    Metric("skewless_consumed_bytes_total", "counter", (), "bytes", "Bytes of the values of the consumed records."),
    Metric(
        "skewless_produced_records_total",
        "counter",
        ("topic",),
        "records",
        "Kafka records produced, by topic of the pipeline, including late tuples and dead letters.",
    ),
    Metric(
        "skewless_produced_bytes_total",
        "counter",
        ("topic",),
        "bytes",
        "Bytes of the values of the produced records, by topic of the pipeline.",
    ),
    Metric(
        "skewless_tuples_total",
        "counter",
        (),
        "tuples",
        "Tuples processed, without late tuples. Without lag, its rate is equal in splitter, router, worker, aggregator,"
        " observer and flusher. left, right, join and enricher count records of their topics, and the ranker counts"
        " candidates. sink, ranksink and mirror count nothing.",
    ),
    Metric(
        "skewless_batch_duration_seconds",
        "histogram",
        (),
        "seconds",
        "Time to process one batch and enqueue its outputs. The count is the number of batches.",
        buckets=SECONDS,
    ),
    Metric(
        "skewless_commit_duration_seconds",
        "histogram",
        (),
        "seconds",
        "Duration of a commit, during which processing is paused, including failed commits. At most 1.5"
        " transport.commit_interval_s pass between two commits, even without records: if the count does not increase,"
        " the process hangs.",
        buckets=SECONDS,
    ),
    Metric(
        "skewless_transactions_total",
        "counter",
        ("outcome",),
        "transactions",
        "Commits by outcome: committed or aborted.",
    ),
    Metric("skewless_in_flight_batches", "gauge", (), "batches", "Batches in flight: read and not yet processed."),
    Metric(
        "skewless_restore_duration_seconds",
        "histogram",
        (),
        "seconds",
        "Time to restore assigned partitions: reading committed offsets, and state from the changelog.",
        buckets=RESTORE_SECONDS,
    ),
    Metric(
        "skewless_restored_records_total",
        "counter",
        (),
        "records",
        "Changelog records from which state was restored.",
    ),
    Metric(
        "skewless_restore_remaining_records",
        "gauge",
        (),
        "records",
        "Offsets of changelogs that are still to be read by the restores in progress. Compaction leaves gaps, so there"
        " may be fewer records.",
    ),
    Metric(
        "skewless_time_seconds_total",
        "counter",
        ("state",),
        "seconds",
        "Time of the process by state. It adds up to the time since the process began to read records: the start-up"
        " before, which takes seconds, is not included. busy: processing batches, without simulated cost;"
        " back_pressured: waiting for the output, because the producer's queue is full or a commit is in progress;"
        " restoring: restoring assigned partitions; idle: waiting for records.",
    ),
)

CLIENTS = (
    Metric(
        "skewless_client_queue_records",
        "gauge",
        ("client",),
        "records",
        "Records in the queues of librdkafka: fetched and not yet read (client consumer), or produced and not yet"
        " acknowledged (producer). Reported every 10 seconds, like the next two.",
    ),
    Metric("skewless_client_queue_bytes", "gauge", ("client",), "bytes", "Bytes of these records."),
    Metric(
        "skewless_client_throttle_seconds_total",
        "counter",
        ("client",),
        "seconds",
        "Time for which brokers have throttled the requests of a client, because of a quota.",
    ),
)

PARTITIONS = (
    Metric(
        "skewless_assigned_partitions",
        "gauge",
        ("state",),
        "partitions",
        "Partitions assigned to this process by the progress of event time: active, idle, ended, or unknown until every"
        " source partition has a watermark.",
    ),
    Metric(
        "skewless_consumer_lag_records",
        "gauge",
        ("partition",),
        "records",
        "Consumer lag: records of the stage's input topic that were not yet processed at the last commit. The"
        " markers of transactions between these records are counted too, those after the last record are not.",
    ),
    Metric(
        "skewless_consumer_lag_seconds",
        "gauge",
        ("partition",),
        "seconds",
        "Age of the oldest record of a partition that is not processed, by the timestamps in Kafka; 0 without lag. If"
        " producers set the event time as the timestamp, as for recorded data, it includes the age of the data.",
    ),
    Metric(
        "skewless_log_start_offset",
        "gauge",
        ("partition",),
        "offset",
        "Log start offset of each input partition: the first record that retention has not deleted.",
    ),
    Metric("skewless_log_end_offset", "gauge", ("partition",), "offset", "Log end offset of each input partition."),
    Metric("skewless_committed_offset", "gauge", ("partition",), "offset", "Committed offset of each partition."),
    Metric(
        "skewless_watermark_timestamp_seconds",
        "gauge",
        ("partition",),
        "seconds",
        "Watermark of a partition: event time up to which it is complete, since the epoch. Absent while the partition"
        " is idle, ended or unknown.",
    ),
    Metric(
        "skewless_max_event_timestamp_seconds",
        "gauge",
        ("partition",),
        "seconds",
        "Largest event time of a partition, since the epoch. The maximum over all partitions of a stage minus the"
        " watermark of a partition is the delay of this partition, also for replays. For live sources the current time"
        " minus this metric is the age of the newest data. In stages after the router it is the start of a pane.",
    ),
)

EVERY_STAGE = (*PROCESS, *TRAFFIC, *CLIENTS, *PARTITIONS)
