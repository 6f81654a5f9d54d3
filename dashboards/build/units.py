"""From the unit of a metric in the list to Grafana's name of it."""

from __future__ import annotations

from skewless.metrics import Metric

_UNITS = {"seconds": "s", "bytes": "bytes", "ratio": "percentunit"}
_RATES = {"seconds": "percentunit", "bytes": "Bps"}
_MOMENTS = ("skewless_start_time_seconds", "skewless_watermark_seconds", "skewless_event_time_seconds")
MOMENTS = (*_MOMENTS, "skewless_observer_tick_seconds")
"""Metrics whose seconds are a moment since the epoch."""
MULTIPLES = ("max_over_avg_ratio", "replication_ratio")
"""Ratios that begin at one, for which percent would be odd."""


def unit(metric: Metric) -> str:
    """Name the unit of what a panel shows of a metric: of counters that is their rate, of moments milliseconds."""
    if metric.name in MOMENTS:
        return "dateTimeAsIso"
    if metric.name.endswith(MULTIPLES):
        return "none"
    if metric.kind == "counter":
        return _RATES.get(metric.unit, "cps")
    return _UNITS.get(metric.unit, "short")
