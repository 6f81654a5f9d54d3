"""Maps the units of metrics to Grafana's units."""

from __future__ import annotations

from skewless.monitoring.metrics import Metric

_UNITS = {"seconds": "s", "bytes": "bytes", "ratio": "percentunit"}
_RATE_UNITS = {"seconds": "percentunit", "bytes": "Bps"}
TIMESTAMPS = (
    "skewless_watermark_timestamp_seconds",
    "skewless_max_event_timestamp_seconds",
    "skewless_observer_tick_end_timestamp_seconds",
)
"""Metrics whose value is a timestamp in seconds since the epoch."""
MULTIPLES = ("max_over_avg_ratio", "replication_ratio")
"""Suffixes of ratios that are 1 or more. They are shown as multiples instead of percent."""


def unit(metric: Metric) -> str:
    """Return the unit of a metric's panel. Counters are shown as rates, timestamps in milliseconds."""
    if metric.name in TIMESTAMPS:
        return "dateTimeAsIso"
    if metric.name.endswith(MULTIPLES):
        return "none"
    if metric.kind == "counter":
        return _RATE_UNITS.get(metric.unit, "cps")
    return _UNITS.get(metric.unit, "short")
