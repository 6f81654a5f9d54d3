"""Puts what a stage shows into Prometheus' form. Values are read when somebody asks: no record pays for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isinf
from typing import NamedTuple

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from skewless.metrics import METRICS, Metric
from skewless.metrics.histogram import Histogram
from skewless.step import Sample


class Durations(NamedTuple):
    """What a histogram has counted; its labels in the order of the list."""

    name: str
    labels: tuple[str, ...]
    histogram: Histogram


Shown = Callable[[], Iterable[Sample | Durations]]

_BY_NAME = {metric.name: metric for metric in METRICS}


class ListCollector(Collector):
    """Gives samples in the form of the list; KeyError for a metric that is not in it."""

    def __init__(self, shown: Shown, constant: Mapping[str, str]) -> None:
        self._shown = shown
        self._constant = constant

    def describe(self) -> list[Family]:
        """Name what may come, so that registering reads nothing."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Read all values now."""
        families: dict[str, Family] = {}
        for sample in self._shown():
            metric = _BY_NAME[sample.name]
            family = families.setdefault(sample.name, _family(metric))
            labels = {**self._constant, **dict(zip(metric.labels, sample.labels, strict=True))}
            if isinstance(sample, Durations):
                _add(family, labels, sample.histogram)
            else:
                family.add_sample(sample.name, labels, sample.value)
        yield from families.values()


def _add(family: Family, labels: dict[str, str], histogram: Histogram) -> None:
    buckets = histogram.cumulative()
    for bound, count in buckets:
        family.add_sample(f"{family.name}_bucket", {**labels, "le": "+Inf" if isinf(bound) else str(bound)}, count)
    family.add_sample(f"{family.name}_count", labels, buckets[-1][1])
    family.add_sample(f"{family.name}_sum", labels, histogram.sum)


def _family(metric: Metric) -> Family:
    return Family(metric.name.removesuffix("_total"), metric.meaning, metric.kind)
