"""THE list of metrics: everything that a process shows at /metrics, and how it is served.

Values are plain counts that steps, session and outbox keep anyway; they are read when somebody asks, so that a metric
costs nothing per record. Counters count work done by this process: what a rewind repeats counts again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from skewless.errors import ConfigurationError


@dataclass(frozen=True)
class Metric:
    """One metric; its name carries the unit, and `_total` if it is a counter."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    unit: str
    meaning: str


METRICS = (
    Metric("skewless_records_total", "counter", ("stage",), "records", "Kafka records read and processed."),
    Metric(
        "skewless_outputs_total",
        "counter",
        ("stage", "topic"),
        "records",
        "Kafka records written, by topic: late and dead-letters too.",
    ),
    Metric(
        "skewless_tuples_total",
        "counter",
        ("stage",),
        "tuples",
        "Tuples taken in; those that are late are not counted. The same for every stage that is up to date.",
    ),
    Metric("skewless_router_tuples_total", "counter", ("worker",), "tuples", "Tuples sent to each worker partition."),
    Metric("skewless_router_workers", "gauge", (), "workers", "W: how many worker partitions get tuples now."),
    Metric(
        "skewless_transactions_total",
        "counter",
        ("stage", "outcome"),
        "transactions",
        "Commits, by outcome: committed or aborted.",
    ),
    Metric(
        "skewless_lag_records",
        "gauge",
        ("stage", "partition"),
        "records",
        "Records of the stage's topic that are not yet committed.",
    ),
    Metric(
        "skewless_watermark_seconds",
        "gauge",
        ("stage", "partition"),
        "seconds",
        "Event time that a partition has reached, since the epoch; the year 9999 when it has ended or is idle.",
    ),
)

PREFIX = "skewless_"


class Sample(NamedTuple):
    """One value of a metric, its labels in the order of the table."""

    name: str
    labels: tuple[str, ...]
    value: float


Samples = Callable[[], Iterable[Sample]]

_BY_NAME = {metric.name: metric for metric in METRICS}


class TableCollector(Collector):
    """Gives the samples in the form of the table; KeyError for a metric that is not in it."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def describe(self) -> list[Family]:
        """Name what may come, so that registering reads nothing."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Read all values now."""
        families: dict[str, Family] = {}
        for sample in self._samples():
            metric = _BY_NAME[sample.name]
            family = families.setdefault(sample.name, _family(metric))
            labels: Mapping[str, str] = dict(zip(metric.labels, sample.labels, strict=True))
            family.add_sample(sample.name, dict(labels), sample.value)
        yield from families.values()


def _family(metric: Metric) -> Family:
    return Family(metric.name.removesuffix("_total"), metric.meaning, metric.kind)


@contextlib.contextmanager
def served(samples: Samples, *, address: str, port: int) -> Iterator[None]:
    """Serve /metrics while the block runs; nothing is served when `port` is 0.

    Raises ConfigurationError when the port is taken.
    """
    if port == 0:
        yield
        return
    registry = CollectorRegistry()
    registry.register(TableCollector(samples))
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise ConfigurationError(f"metrics.port: {address}:{port} cannot be listened on: {error.strerror}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
