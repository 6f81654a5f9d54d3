"""What a metric is, and what all of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "skewless_"

CONSTANT_LABELS = ("pipeline", "stage")
"""On every metric: two pipelines in one Prometheus are told apart, and panels can be chained by stage."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of all durations; the last one is infinite."""


@dataclass(frozen=True)
class Metric:
    """One metric; its name carries the unit, and `_total` if it is a counter."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    """Those beside the constant ones; never a record's key."""
    unit: str
    meaning: str
    stages: tuple[str, ...] = ()
    """The stages that show it; empty for all."""
    buckets: tuple[float, ...] = ()
    """Upper bounds, ascending; only of histograms."""

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels as they are shown."""
        return CONSTANT_LABELS + self.labels
