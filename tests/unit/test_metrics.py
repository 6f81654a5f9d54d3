"""The table of metrics, and how a process shows it."""

from __future__ import annotations

import re
import socket
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from skewless import topology
from skewless.errors import ConfigurationError
from skewless.metrics import CONSTANT_LABELS, METRICS, Metric
from skewless.metrics.histogram import Histogram
from skewless.runner import build, wire
from skewless.settings import PipelineSettings
from skewless.step import Sample
from skewless.transport.app import Wiring
from skewless.watch.collector import Durations, ListCollector
from skewless.watch.samples import samples
from skewless.watch.server import served

HERE = {"pipeline": "p", "stage": "router"}


def shown(*values: Sample | Durations) -> str:
    registry = CollectorRegistry()
    registry.register(ListCollector(lambda: values, HERE))
    return generate_latest(registry).decode()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def router() -> Wiring:
    settings = PipelineSettings.model_validate(
        {"name": "p", "source": {"topic": "s"}, "router": {"workers": 2}, "worker_input": {"max_workers": 3}}
    )
    return wire("router", build("router", settings, drain=False), settings, 0, drain=False)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_prometheus_conventions(metric: Metric) -> None:
    """What `promtool check metrics` says of names, and what prometheus.io/docs/practices/naming asks for."""
    words = metric.name.split("_")
    assert re.fullmatch(r"skewless(_[a-z]+)+", metric.name)
    assert (words[-1] == "total") == (metric.kind == "counter")
    assert not {"count", "sum", "bucket", "total"} & set(words[:-1] if metric.kind == "counter" else words)
    assert not {"counter", "gauge", "histogram", "summary"} & set(words)
    assert not {"s", "ms", "us", "ns", "sec", "milliseconds", "minutes", "b", "kb", "mb", "percent"} & set(words)
    assert metric.meaning.endswith(".")
    unit = words[-2] if metric.kind == "counter" else words[-1]
    assert unit == metric.unit or metric.unit not in {"seconds", "bytes", "ratio", "info"}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_labels_are_few_and_bounded(metric: Metric) -> None:
    bounded = {"version", "kind", "event", "topic", "outcome", "state", "partition", "worker", "direction", "rank"}
    assert set(metric.labels) <= bounded | {"grouping"}
    assert len(metric.labels) <= 1
    assert not set(metric.labels) & set(CONSTANT_LABELS)
    assert set(metric.stages) <= {stage.name for stage in topology.STAGES}
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_every_sample_tells_pipeline_and_stage() -> None:
    assert shown(Sample("skewless_router_workers", (), 4)).splitlines()[-1] == (
        'skewless_router_workers{pipeline="p",stage="router"} 4.0'
    )


def test_a_histogram_counts_by_upper_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(seconds)
    lines = shown(Durations("skewless_batch_seconds", (), histogram)).splitlines()[2:]
    assert [
        line.removeprefix("skewless_batch_seconds_").replace('pipeline="p",stage="router"', "") for line in lines
    ] == [
        'bucket{le="0.1",} 2.0',
        'bucket{le="1.0",} 3.0',
        'bucket{le="+Inf",} 4.0',
        "count{} 4.0",
        "sum{} 7.65",
    ]


def test_samples_are_shown_with_kind_and_meaning() -> None:
    text = shown(
        Sample("skewless_transactions_total", ("committed",), 3),
        Sample("skewless_transactions_total", ("aborted",), 1),
        Sample("skewless_lag_records", ("0",), 7),
    )
    (transactions, lag) = text_string_to_metric_families(text)
    assert (transactions.type, lag.type) == ("counter", "gauge")
    assert [(sample.labels["outcome"], sample.value) for sample in transactions.samples] == [
        ("committed", 3),
        ("aborted", 1),
    ]
    assert lag.documentation == next(metric.meaning for metric in METRICS if metric.name == "skewless_lag_records")


def test_a_metric_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(KeyError):
        shown(Sample("skewless_more_total", (), 1))


def test_a_sample_needs_the_labels_of_the_table() -> None:
    with pytest.raises(ValueError, match="zip"):
        shown(Sample("skewless_tuples_total", ("more",), 1))


def test_metrics_are_served_while_the_block_runs_and_not_longer() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with served(ListCollector(lambda: [Sample("skewless_tuples_total", (), 5)], HERE), address="127.0.0.1", port=port):
        text = urllib.request.urlopen(url, timeout=5).read().decode()
    assert 'skewless_tuples_total{pipeline="p",stage="router"} 5.0' in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_port_0_serves_nothing() -> None:
    with served(ListCollector(lambda: pytest.fail("nobody asks"), HERE), address="127.0.0.1", port=0):
        pass


def test_a_port_that_is_taken_is_a_mistake_of_configuration() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigurationError, match=rf"metrics.port: 127.0.0.1:{port}"),
            served(ListCollector(list, HERE), address="127.0.0.1", port=port),
        ):
            pass


def test_a_stage_shows_what_its_parts_have_counted() -> None:
    wiring = router()
    wiring.session.records, wiring.session.step.tuples = 2, 30
    wiring.session.step.tuples_by_worker[:] = (10, 20, 0)
    wiring.session.lag, wiring.session.watermarks = {0: 4}, {0: 1500}
    wiring.outbox.sent["worker-input"] += 6
    wiring.outbox.outcomes["committed"] += 1
    assert list(samples(wiring)) == [
        ("skewless_input_records_total", (), 2),
        ("skewless_tuples_total", (), 30),
        ("skewless_router_workers", (), 2),
        ("skewless_router_tuples_total", ("0",), 10),
        ("skewless_router_tuples_total", ("1",), 20),
        ("skewless_router_tuples_total", ("2",), 0),
        ("skewless_output_records_total", ("worker-input",), 6),
        ("skewless_transactions_total", ("committed",), 1),
        ("skewless_lag_records", ("0",), 4),
        ("skewless_watermark_seconds", ("0",), 1.5),
    ]
