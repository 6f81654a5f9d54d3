"""Metrics of a splitter: records that the conditions of the pipeline filter out, and local aggregation."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS = (
    Metric(
        "skewless_splitter_filtered_records_total",
        "Records without tuples because of splitter.where, splitter.envelope or splitter.tombstones.",
    ),
    Metric(
        "skewless_splitter_rounded_values_total",
        "Values that were rounded, because they have more decimal places than splitter.value.decimals keeps.",
    ),
    Metric(
        "skewless_splitter_paused_partitions",
        "Source partitions that wait, because they are ahead of slower ones (event_time.max_watermark_drift_s).",
    ),
    Metric("skewless_splitter_local_tuples_total", "Tuples that were aggregated locally (splitter.local)."),
    Metric(
        "skewless_splitter_local_rows_total",
        "Rows to which these tuples were reduced. Few rows per tuple save work behind the splitter.",
    ),
    Metric(
        "skewless_splitter_local_buffer_rows",
        "Rows, and tuples that are not aggregated yet, in the buffers of this process.",
    ),
    Metric(
        "skewless_splitter_local_flushes_total",
        "Flushes of rows: before a commit, because their size reached a limit, because their local window was closed, "
        "or because their partition had no more records.",
        labels=("cause",),
    ),
    Metric(
        "skewless_splitter_local_reread_records_total",
        "Source records that were read again on assignment, because their tuples were held in local windows.",
    ),
    Metric(
        "skewless_splitter_local_active",
        "Whether the tuples of a source partition are aggregated: 0 without local aggregation, or if an adaptive one is"
        " off for it.",
        labels=("partition",),
        unit="bool",
    ),
)
"""Definitions of the metrics that only this stage has."""
