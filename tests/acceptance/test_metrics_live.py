"""Metrics, probes and traces of running processes, compared with the records in the topics."""
# ruff: noqa: T201 - figures are shown with `-s`

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from chaos.proxy import Proxy
from helpers import tools
from helpers.batches import encode_tuples
from helpers.headers import internal_headers
from helpers.kafka import SINK_MODES, START_MS, Pipeline, Source, zipf_records
from helpers.stage_hosts import hosted
from helpers.waiting import until
from skewless.algorithms.grouping import GROUPINGS
from skewless.lab.local.child_process import ChildProcess
from skewless.lab.local.ports import find_free_ports
from skewless.monitoring.metrics import METRICS
from skewless.service import run_stages
from skewless.wire.columns import read_table
from skewless.wire.tuples import TUPLES

WORKERS = 6
BATCHES, BATCH = 20, 1_000
RECORDS = 20_000
LIMIT_S = 240.0
"""Deadline in s for a busy machine. On two idle cores each of these tests takes less than 30 s."""
_PRODUCED = {"skewless_produced_records_total", "skewless_produced_bytes_total"}
NOT_SHOWN = {
    "flusher": _PRODUCED,
    "sink": _PRODUCED | {"skewless_watermark_timestamp_seconds", "skewless_consumer_lag_seconds"},
}
"""Metrics that a stage without topics, without watermarks, or that reads results does not show."""
REPORTED = {"skewless_client_queue_records", "skewless_log_start_offset"}
"""Metrics that a process shows after the first report of librdkafka, 10 s after its start."""
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PATIENT = {"commit_interval_s": 0.3, "session_timeout_s": 60, "transaction_timeout_s": 120}
"""Timeout of transactions in s. If one times out, the stage repeats it, and counters count its records again."""


def scraped(port: int) -> list[Sample]:
    """Send one request to a process; returns None while the process does not listen."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return []
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def by_worker(samples: list[Sample], name: str) -> dict[int, int]:
    found = {int(sample.labels["worker"]): int(sample.value) for sample in samples if sample.name == name}
    return {worker: tuples for worker, tuples in found.items() if tuples}


def value(samples: list[Sample], name: str, **labels: str) -> float:
    return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())


def in_topic(pipeline: Pipeline) -> dict[int, int]:
    """Count the tuples of each partition of worker-input."""
    found: Counter[int] = Counter()
    for record in pipeline.read("worker-input"):
        if record.value:
            found[record.partition] += read_table(record.value).num_rows
    return dict(found)


def route_some(pipeline: Pipeline, seed: int) -> None:
    """Write tuples as a splitter does: Zipf-distributed keys in both partitions."""
    rng = np.random.default_rng(seed)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "log_level": 2})
    for number in range(BATCHES):
        keys = pa.array([f"k{key}" for key in np.minimum(rng.zipf(1.5, BATCH), 5_000)], pa.string())
        times = np.arange(BATCH, dtype=np.int64) + START_MS + number * BATCH
        columns = encode_tuples(keys.dictionary_encode(), np.ones(BATCH, dtype=np.int64), times)
        partition = number % 2
        headers = list(internal_headers(TUPLES, {partition: int(times[-1])}))
        producer.produce(pipeline.settings.topic("tuples"), columns, partition=partition, headers=headers)
    assert producer.flush(60) == 0


@contextlib.contextmanager
def stage(pipeline: Pipeline, name: str, **environment: str) -> Iterator[tuple[int, ChildProcess]]:
    """Run one process of a stage with metrics on a port."""
    (port,) = find_free_ports(1)
    env = {**os.environ, "SKEWLESS__METRICS__PORT": str(port), **environment}
    with hosted(pipeline.file, "run", name, log=pipeline.folder / f"{name}.log", environment=env) as child:
        yield port, child


def routed(pipeline: Pipeline) -> list[Sample]:
    """Run the router in this process until it has committed everything; returns one scrape after that."""
    (port,), over, last = find_free_ports(1), threading.Event(), list[Sample]()

    def done() -> bool:
        committed = pipeline.written("worker-input") > 0 and pipeline.tuples("worker-input") == BATCHES * BATCH
        last[:] = scraped(port)
        flushed = any(
            sample.name == "skewless_router_worker_load_share_ratio" for sample in last
        )  # metrics are updated at a commit
        return over.is_set() or (committed and flushed)

    def watch() -> None:
        until(done, every_s=0.05, limit_s=LIMIT_S)
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    shown = pipeline.settings.metrics.model_copy(update={"port": port, "address": "127.0.0.1"})
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        run_stages(["router"], pipeline.settings.model_copy(update={"metrics": shown}))
    finally:
        over.set()
        watching.join()
    return last


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_router_metrics_of_each_grouping_equal_the_worker_partitions(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    started = time.monotonic()
    for seed, grouping in enumerate(sorted(GROUPINGS)):
        pipeline = Pipeline(
            broker,
            tmp_path,
            source,
            router={"grouping": grouping, "workers": WORKERS},
            worker_input={"max_workers": WORKERS},
            topics={"aggregator_partitions": 1},
            transport=PATIENT,
        )
        route_some(pipeline, seed)
        samples = routed(pipeline)
        shown = by_worker(samples, "skewless_router_tuples_total")
        assert shown == in_topic(pipeline), grouping
        assert value(samples, "skewless_router_info", grouping=grouping, pipeline=pipeline.name) == 1
        loads = [
            value(samples, "skewless_router_worker_load_share_ratio", worker=str(worker)) for worker in range(WORKERS)
        ]
        assert sum(loads) == pytest.approx(1)
        print(f"{grouping}: {shown}, max/avg {value(samples, 'skewless_router_max_over_avg_ratio'):.3f}")
    print(f"{len(GROUPINGS)} groupings in {time.monotonic() - started:.0f} s")


class Collector(http.server.ThreadingHTTPServer):
    """Receives spans as an OpenTelemetry collector does, and stores them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), SpanCollector)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class SpanCollector(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        pass


def traced_record(source: Source, bootstrap: str) -> None:
    """Write one record with a trace context, and one invalid record."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    headers = [("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode())]
    entry = {"key": "traced", "value": 1, "time": START_MS + 700_000}
    producer.produce(source.topic, json.dumps(entry).encode(), partition=0, headers=headers)
    producer.produce(source.topic, b"no json", partition=0, headers=headers)
    assert producer.flush(60) == 0


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_metrics_of_a_running_pipeline_are_complete_and_agree_with_the_topics(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    with Collector() as collector:
        endpoint = f"http://127.0.0.1:{collector.server_address[1]}/v1/traces"
        pipeline = Pipeline(
            broker,
            tmp_path,
            source,
            router={"grouping": "even", "workers": WORKERS},
            # A busy machine may need longer than the idle timeout. An idle partition has no watermark to show.
            event_time={"allowed_lateness_s": 20, "idle_timeout_s": None},
            worker={"cost": {"cycle": 100, "process_duration_ms": 0.1}},
            aggregator={"emit": "updates"},
            transport=PATIENT,
            tracing={"enabled": True, "endpoint": endpoint, "sample_ratio": 0.0},
        )
        source.send(zipf_records(RECORDS, 2, seed=3, keys=500))
        traced_record(source, broker)
        with pipeline.running() as supervisor, pipeline.running_sinks() as sinks:
            seen: dict[str, list[Sample]] = {}
            supervisors = [supervisor, *sinks]
            processes = {name: replica for each in supervisors for name, replica in each.processes.items()}

            def quiet() -> bool:
                for each in supervisors:
                    each.poll(time.monotonic())
                for name, replica in processes.items():
                    seen[name.partition("-")[0]] = scraped(replica.metrics_port)
                read = value(seen["splitter"], "skewless_consumed_records_total")
                tuples = {value(seen[name], "skewless_tuples_total") for name in seen.keys() - {"sink"}}
                lag = sum(value(samples, "skewless_consumer_lag_records") for samples in seen.values())
                written_ticks = value(seen["observer"], "skewless_observer_ticks_total")
                reported = all({sample.name for sample in samples} >= REPORTED for samples in seen.values())
                if read < RECORDS + 2 or len(tuples) > 1 or lag > 0 or written_ticks == 0 or not reported:
                    return False
                # What is read is committed later. The results are complete when they count all tuples.
                results = pipeline.results()[0].values()
                return (
                    {sum(result["count"] for result in results)} == tuples
                    and value(seen["flusher"], "skewless_sink_rows_total", outcome="stored") >= len(results)
                    and value(seen["aggregator"], "skewless_aggregator_results_total") == pipeline.count("aggregates")
                    and written_ticks == pipeline.count("distribution")
                    and value(seen["splitter"], "skewless_committed_offset") == RECORDS + 2
                    and value(seen["sink"], "skewless_consumed_records_total") == pipeline.count("aggregates")
                    and value(seen["sink"], "skewless_sink_rows_total", outcome="stored") >= len(results)
                    and value(seen["sink"], "skewless_sink_pending_rows") == 0
                )

            until(quiet, every_s=0.2, limit_s=LIMIT_S)
            agree(pipeline, seen)
            texts = {name: text(replica.metrics_port) for name, replica in processes.items()}
        traces_go_through(pipeline)
    assert b"process " + pipeline.settings.topic("tuples").encode() in b"".join(collector.bodies)
    for name, shown in texts.items():
        checked = subprocess.run([tools.promtool(), "check", "metrics"], input=shown, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr.decode(), checked.stdout.decode()) == (0, "", ""), name


def text(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
        body: bytes = answer.read()
    return body


def agree(pipeline: Pipeline, seen: Mapping[str, list[Sample]]) -> None:
    """Compare the metrics of the stages with each other and with the topics."""
    for metric in METRICS:
        for name in seen.keys() & (metric.stages or seen.keys()):
            if metric.name in NOT_SHOWN.get(name, ()):
                continue
            suffix = "_count" if metric.kind == "histogram" else ""
            found = [sample for sample in seen[name] if sample.name == metric.name + suffix]
            assert found, f"{name} does not show {metric.name}"
            assert {(sample.labels["pipeline"], sample.labels["stage"]) for sample in found} == {(pipeline.name, name)}
    loads = in_topic(pipeline)
    assert by_worker(seen["router"], "skewless_router_tuples_total") == loads
    assert by_worker(seen["worker"], "skewless_worker_tuples_total") == loads
    for worker in loads:
        assert value(seen["worker"], "skewless_worker_busy_seconds_total", worker=str(worker)) > 0
    written = {topic: pipeline.count(topic) for topic in ("late", "dead-letters", "aggregates", "distribution")}
    assert value(seen["splitter"], "skewless_produced_records_total", topic="late") == written["late"] > 0
    assert (
        value(seen["splitter"], "skewless_produced_records_total", topic="dead-letters") == written["dead-letters"] == 1
    )
    assert value(seen["aggregator"], "skewless_aggregator_results_total") == written["aggregates"]
    assert value(seen["observer"], "skewless_observer_ticks_total") == written["distribution"]
    size = sum(len(record.value or b"") for record in pipeline.read("aggregates"))
    assert value(seen["aggregator"], "skewless_produced_bytes_total", topic="aggregates") == size
    assert value(seen["splitter"], "skewless_assigned_partitions") == 2
    stored = {name: value(seen[name], "skewless_sink_rows_total", outcome="stored") for name in SINK_MODES}
    results = len(pipeline.results()[0])
    assert results <= stored["sink"] <= written["aggregates"]  # updates of one transaction are one row
    assert results <= stored["flusher"]
    offsets = value(seen["splitter"], "skewless_committed_offset")
    assert offsets == RECORDS + 2
    delay = [
        value(seen["splitter"], name, partition="0")
        for name in ("skewless_max_event_timestamp_seconds", "skewless_watermark_timestamp_seconds")
    ]
    assert delay[0] - delay[1] == pytest.approx(20)
    last = json.loads(list(pipeline.read("distribution"))[-1].value or b"")
    assert value(seen["observer"], "skewless_observer_imbalance_ratio") == pytest.approx(last["imbalance"])
    assert value(seen["observer"], "skewless_observer_replication_factor") == pytest.approx(last["replication_factor"])


def traces_go_through(pipeline: Pipeline) -> None:
    """Find the trace of the one traced record in every topic that the record reached."""
    reached = defaultdict(set)
    for topic in ("tuples", "late", "dead-letters", "worker-input", "partials", "aggregates"):
        for record in pipeline.read(topic):
            if context := record.headers.get("traceparent"):
                reached[topic].add(context.decode().split("-")[1])
    assert {topic for topic, traces in reached.items() if traces == {TRACE}} >= {
        "tuples",
        "dead-letters",
        "worker-input",
        "partials",
        "aggregates",
    }


def probed(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Return the status of a probe; 0 while the process does not listen, or if it ends within its answer."""
    try:
        try:
            answer = urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return 0, {}


@pytest.mark.timeout(600)
def test_readyz_from_first_assignment_until_shutdown_reports_ready(broker: str, tmp_path: Path) -> None:
    # It commits at its end, which takes some time: so it is seen while it stops.
    slow = {"commit_interval_s": 60, "transaction_timeout_s": 180, "session_timeout_s": 60}
    pipeline = Pipeline(broker, tmp_path, Source(broker, 2), transport=slow)
    reasons: list[str] = []

    def ready(port: int) -> bool:
        status, body = probed(port, "/readyz")
        reasons.extend(body.get("reasons", []))
        return status == 200

    def is_seen_stopping(port: int, child: ChildProcess) -> bool:
        until(lambda: ready(port))
        until(lambda: probed(port, "/livez")[0] == 200)
        child.send_signal(signal.SIGTERM)
        is_seen = False
        while child.poll() is None:
            is_seen |= probed(port, "/readyz")[1].get("reasons", [])[:1] == ["stopping"]
        assert child.returncode == 0
        return is_seen

    with Proxy() as between:
        through = {
            "SKEWLESS__KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{between.port}",
            "SKEWLESS__KAFKA__CONNECT_TIMEOUT_S": "60",
        }
        with stage(pipeline, "aggregator", **through) as (port, child):
            until(lambda: probed(port, "/readyz")[0] == 503)
            until(lambda: probed(port, "/readyz")[1].get("reasons") == ["starting: Kafka has not answered yet"])
            until(lambda: probed(port, "/livez")[0] == 200)
            between.target = int(broker.rpartition(":")[2])
            is_seen = is_seen_stopping(port, child)
    for _ in range(10):
        if is_seen:
            break
        with stage(pipeline, "aggregator") as (port, child):
            is_seen = is_seen_stopping(port, child)
    assert is_seen
    print(f"on the way to ready: {list(dict.fromkeys(reasons))}")
    lines = [json.loads(line) for line in (pipeline.folder / "aggregator.log").read_text().splitlines()]
    assert {(line["pipeline"], line["stage"], line["instance"]) for line in lines} == {(pipeline.name, "aggregator", 0)}
    assert lines[-1]["message"].endswith("everything processed is committed")
