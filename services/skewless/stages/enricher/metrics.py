"""Metrics of the enricher."""

from __future__ import annotations

from skewless.metric_definition import Metric

METRICS = (
    Metric(
        "skewless_enricher_table_rows", "Rows of a table that this process has in memory, by topic.", labels=("topic",)
    ),
    Metric(
        "skewless_enricher_unreadable_rows_total",
        "Rows of a table that could not be read. Their keys have no row.",
        labels=("topic",),
    ),
    Metric(
        "skewless_enricher_missing_rows_total",
        "Records without a row in a table, or whose row lacks a field (enrich.tables.missing).",
        labels=("topic",),
        unit="records",
    ),
)
"""Definitions of the metrics that not every stage has."""
