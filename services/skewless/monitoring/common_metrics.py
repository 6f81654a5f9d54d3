"""Metrics of every stage: the process, its throughput and durations, and its partitions."""

from __future__ import annotations

from skewless.metric_definition import RESTORE_SECONDS, SECONDS, Metric

PROCESS = (
    Metric("skewless_build_info", "Always 1; the label is the version of Skewless.", labels=("version",)),
    Metric(
        "skewless_allocated_blocks",
        "Memory blocks that Python's allocator holds. They vary with state and load. Growth over hours at constant load"
        " and state is a leak of Python objects, independent of process_resident_memory_bytes.",
    ),
    Metric(
        "skewless_memory_limit_bytes",
        "Memory that the process may use: the limit of its container, or the memory of the machine. Compare it with"
        " process_resident_memory_bytes.",
    ),
    Metric("skewless_ready", "1 if /readyz reports ready, else 0.", unit="0 or 1"),
    Metric(
        "skewless_recoveries_total",
        "Recoveries from errors. transaction_abort: the process aborted the transaction and reset to the committed"
        " offsets; producer_replacement: it replaced its producer.",
        labels=("type",),
    ),
    Metric(
        "skewless_rebalances_total",
        "Rebalance callbacks of this process: partitions assigned, revoked, or lost without a prior revocation.",
        labels=("event",),
    ),
)

TRAFFIC = (
    Metric("skewless_consumed_records_total", "Kafka records consumed and processed."),
    Metric("skewless_consumed_bytes_total", "Bytes of the values of the consumed records."),
    Metric(
        "skewless_produced_records_total",
        "Kafka records produced, by topic of the pipeline, including late tuples and dead letters.",
        labels=("topic",),
    ),
    Metric(
        "skewless_produced_bytes_total",
        "Bytes of the values of the produced records, by topic of the pipeline.",
        labels=("topic",),
    ),
    Metric(
        "skewless_tuples_total",
        "Tuples processed, without late tuples. Without lag, its rate is equal in splitter, router, worker, aggregator,"
        " observer and flusher. left, right, join and enricher count records of their topics, and the ranker counts"
        " candidates. sink, ranksink and mirror count nothing.",
    ),
    Metric(
        "skewless_batch_duration_seconds",
        "Time to process one batch and enqueue its outputs. The count is the number of batches.",
        buckets=SECONDS,
    ),
    Metric(
        "skewless_commit_duration_seconds",
        "Duration of a commit, during which processing is paused, including failed commits. At most 1.5"
        " transport.commit_interval_s pass between two commits, even without records: if the count does not increase,"
        " the process hangs.",
        buckets=SECONDS,
    ),
    Metric("skewless_transactions_total", "Commits by outcome: committed or aborted.", labels=("outcome",)),
    Metric("skewless_in_flight_batches", "Batches in flight: read and not yet processed."),
    Metric(
        "skewless_restore_duration_seconds",
        "Time to restore assigned partitions: reading committed offsets, and state from the changelog.",
        buckets=RESTORE_SECONDS,
    ),
    Metric("skewless_restored_records_total", "Changelog records from which state was restored."),
    Metric(
        "skewless_restore_remaining_records",
        "Offsets of changelogs that are still to be read by the restores in progress. Compaction leaves gaps, so there"
        " may be fewer records.",
    ),
    Metric(
        "skewless_time_seconds_total",
        "Time of the process by state. It adds up to the time since the process began to read records: the start-up"
        " before, which takes seconds, is not included. busy: processing batches, without simulated cost;"
        " back_pressured: waiting for the output, because the producer's queue is full or a commit is in progress;"
        " restoring: restoring assigned partitions; idle: waiting for records.",
        labels=("state",),
    ),
)

CLIENTS = (
    Metric(
        "skewless_client_queue_records",
        "Records in the queues of librdkafka: fetched and not yet read (client consumer), or produced and not yet"
        " acknowledged (producer). Reported every 10 seconds, like the next two.",
        labels=("client",),
    ),
    Metric("skewless_client_queue_bytes", "Bytes of these records.", labels=("client",)),
    Metric(
        "skewless_client_throttle_seconds_total",
        "Time for which brokers have throttled the requests of a client, because of a quota.",
        labels=("client",),
    ),
)

PARTITIONS = (
    Metric(
        "skewless_assigned_partitions",
        "Partitions assigned to this process by the progress of event time: active, idle, ended, or unknown until every"
        " source partition has a watermark.",
        labels=("state",),
    ),
    Metric(
        "skewless_consumer_lag_records",
        "Consumer lag: records of the stage's input topic that were not yet processed at the last commit. The"
        " markers of transactions between these records are counted too, those after the last record are not.",
        labels=("partition",),
    ),
    Metric(
        "skewless_consumer_lag_seconds",
        "Age of the oldest record of a partition that is not processed, by the timestamps in Kafka; 0 without lag. If"
        " producers set the event time as the timestamp, as for recorded data, it includes the age of the data. That of"
        " a pair of a join is its left time. Absent for stages that read results, because the timestamp of a result is"
        " the start of its window.",
        labels=("partition",),
    ),
    Metric(
        "skewless_log_start_offset",
        "Log start offset of each input partition: the first record that retention has not deleted.",
        labels=("partition",),
    ),
    Metric("skewless_log_end_offset", "Log end offset of each input partition.", labels=("partition",)),
    Metric("skewless_committed_offset", "Committed offset of each partition.", labels=("partition",)),
    Metric(
        "skewless_watermark_timestamp_seconds",
        "Watermark of a partition: event time up to which it is complete, since the epoch. Absent while the partition"
        " is idle, ended or unknown.",
        labels=("partition",),
    ),
    Metric(
        "skewless_max_event_timestamp_seconds",
        "Largest event time of a partition, since the epoch. The maximum over all partitions of a stage minus the"
        " watermark of a partition is the delay of this partition, also for replays. For live sources the current time"
        " minus this metric is the age of the newest data. In stages after the router it is the start of a pane.",
        labels=("partition",),
    ),
)

EVERY_STAGE = (*PROCESS, *TRAFFIC, *CLIENTS, *PARTITIONS)
