"""Definition of a metric, and the name prefix, labels and buckets that all metrics share."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

PREFIX = "skewless_"

CONSTANT_LABELS = ("pipeline", "stage")
"""Labels of every metric. They separate the pipelines of one Prometheus server, and dashboards filter by them."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of all duration histograms, in seconds. An infinite bucket follows the last bound."""

RESTORE_SECONDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0)
"""Upper bounds of the buckets of restores, in seconds."""


@dataclass(frozen=True)
class Metric:
    """One metric. Its name carries the unit, and the suffix `_total` if it is a counter."""

    name: str
    meaning: str
    _: KW_ONLY
    labels: tuple[str, ...] = ()
    """Labels in addition to the constant ones. Never a record's key: the number of keys is unbounded."""
    unit: str = ""
    """By default the last word of the name without `_total`."""
    stages: tuple[str, ...] = ()
    """Stages that export the metric; empty for all."""
    buckets: tuple[float, ...] = ()
    """Upper bounds in ascending order; only for histograms."""

    def __post_init__(self) -> None:
        if not self.unit:
            object.__setattr__(self, "unit", self.name.removesuffix("_total").rpartition("_")[2])

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """The type of the metric for Prometheus."""
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"
