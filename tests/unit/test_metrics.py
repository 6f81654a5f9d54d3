"""The table of metrics, and how a process shows it."""

from __future__ import annotations

import re
import socket
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from skewless import exporter, metrics
from skewless.errors import ConfigurationError
from skewless.metrics import METRICS, Sample, TableCollector, served
from skewless.runner import build, wire
from skewless.settings import PipelineSettings
from skewless.transport.app import Wiring


def shown(*samples: Sample) -> str:
    registry = CollectorRegistry()
    registry.register(TableCollector(lambda: samples))
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
def test_names_follow_prometheus_conventions(metric: metrics.Metric) -> None:
    assert re.fullmatch(r"skewless(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(ms|milliseconds|kb|mb|percent)\b", metric.name)
    assert metric.meaning.endswith(".")


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_samples_are_shown_with_kind_and_meaning() -> None:
    text = shown(
        Sample("skewless_transactions_total", ("worker", "committed"), 3),
        Sample("skewless_transactions_total", ("worker", "aborted"), 1),
        Sample("skewless_lag_records", ("worker", "0"), 7),
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
        shown(Sample("skewless_tuples_total", (), 1))


def test_metrics_are_served_while_the_block_runs_and_not_longer() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with served(lambda: [Sample("skewless_tuples_total", ("router",), 5)], address="127.0.0.1", port=port):
        text = urllib.request.urlopen(url, timeout=5).read().decode()
    assert 'skewless_tuples_total{stage="router"} 5.0' in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_port_0_serves_nothing() -> None:
    with served(lambda: pytest.fail("nobody asks"), address="127.0.0.1", port=0):
        pass


def test_a_port_that_is_taken_is_a_mistake_of_configuration() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigurationError, match=rf"metrics.port: 127.0.0.1:{port}"),
            served(list, address="127.0.0.1", port=port),
        ):
            pass


def test_a_stage_shows_what_its_parts_have_counted() -> None:
    wiring = router()
    wiring.session.records, wiring.session.step.tuples = 2, 30
    wiring.session.step.tuples_by_worker[:] = (10, 20, 0)
    wiring.session.lag, wiring.session.watermarks = {0: 4}, {0: 1500}
    wiring.outbox.sent["worker-input"] += 6
    wiring.outbox.outcomes["committed"] += 1
    assert list(exporter.samples("router", wiring)) == [
        ("skewless_records_total", ("router",), 2),
        ("skewless_tuples_total", ("router",), 30),
        ("skewless_router_workers", (), 2),
        ("skewless_router_tuples_total", ("0",), 10),
        ("skewless_router_tuples_total", ("1",), 20),
        ("skewless_router_tuples_total", ("2",), 0),
        ("skewless_outputs_total", ("router", "worker-input"), 6),
        ("skewless_transactions_total", ("router", "committed"), 1),
        ("skewless_lag_records", ("router", "0"), 4),
        ("skewless_watermark_seconds", ("router", "0"), 1.5),
    ]


def test_everything_a_stage_shows_is_in_the_table() -> None:
    source = Path(exporter.__file__).read_text()
    assert set(re.findall(r'"(skewless_\w+)"', source)) == {metric.name for metric in METRICS}
