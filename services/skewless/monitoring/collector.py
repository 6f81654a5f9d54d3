"""Converts the samples of stages to Prometheus' format. Values are read at scrape time: no cost per record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isinf

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from skewless.algorithms.duration_histogram import Histogram
from skewless.engine.step import HistogramSample, Sample
from skewless.monitoring.metrics import METRICS, Metric

ReadSamples = Callable[[], Iterable[Sample | HistogramSample]]
StageSamples = tuple[ReadSamples, Mapping[str, str]]
"""Reads the samples of a stage; the labels that all of them get."""

_BY_NAME = {metric.name: metric for metric in METRICS}


class MetricsCollector(Collector):
    """Collects samples for Prometheus' client library; KeyError for a metric that is not in `METRICS`."""

    def __init__(self, *stages: StageSamples) -> None:
        self._stages = stages

    def describe(self) -> list[Family]:
        """Return all metrics without values. The registry calls this instead of `collect` when it registers."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Read all values and yield them by metric."""
        families: dict[str, Family] = {}
        for read_samples, constant_labels in self._stages:
            for sample in read_samples():
                metric = _BY_NAME[sample.name]
                family = families.setdefault(sample.name, _family(metric))
                labels = {**constant_labels, **dict(zip(metric.labels, sample.labels, strict=True))}
                if isinstance(sample, HistogramSample):
                    _add_histogram(family, labels, sample.histogram)
                else:
                    family.add_sample(sample.name, labels, sample.value)
        yield from families.values()


def _add_histogram(family: Family, labels: dict[str, str], histogram: Histogram) -> None:
    buckets = histogram.cumulative()
    for bound, count in buckets:
        found = histogram.exemplars.get(bound)
        exemplar = None if found is None else Exemplar({"trace_id": found.trace_id}, found.value)
        bucket = {**labels, "le": "+Inf" if isinf(bound) else str(bound)}
        family.add_sample(f"{family.name}_bucket", bucket, count, exemplar=exemplar)
    family.add_sample(f"{family.name}_count", labels, buckets[-1][1])
    family.add_sample(f"{family.name}_sum", labels, histogram.sum)


def _family(metric: Metric) -> Family:
    return Family(metric.name.removesuffix("_total"), metric.meaning, metric.kind)
