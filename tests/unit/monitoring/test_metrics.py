"""The list of metrics, its exposition in Prometheus' format, and the samples of running stages."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from helpers.batches import encode_tuples
from helpers.engine import at
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from helpers.source_files import assert_none
from helpers.stage_start import in_memory
from skewless import topology
from skewless.algorithms.duration_histogram import Histogram
from skewless.algorithms.grouping import KeyBatch, create
from skewless.algorithms.grouping.base import Widths
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.stage_runtime import StageRuntime
from skewless.engine.step import HistogramSample, Sample
from skewless.monitoring.collector import MetricsCollector
from skewless.monitoring.health import Health
from skewless.monitoring.metrics import CONSTANT_LABELS, METRICS, Metric
from skewless.monitoring.metrics_reader import MetricsReader
from skewless.service import build_runtime
from skewless.stages.built_stage import build
from skewless.stages.router.metrics import RouterMetrics, decisions
from skewless.wire.record import OutputRecord
from skewless.wire.tuples import TUPLES

HERE = {"pipeline": "p", "stage": "router"}
DOCUMENTED = re.compile(r"^\| (router|worker) \| (\d+) \|", re.MULTILINE)


def shown(*values: Sample | HistogramSample) -> str:
    return text_of(lambda: values)


def text_of(values: Callable[[], Iterable[Sample | HistogramSample]]) -> str:
    registry = CollectorRegistry()
    registry.register(MetricsCollector((values, HERE)))
    return generate_latest(registry).decode()


def wired(stage: str, grouping: str = "key", workers: int = 2, max_workers: int = 3) -> StageRuntime:
    settings = PipelineSettings.model_validate(
        {
            "name": "p",
            "source": {"topic": "s"},
            "router": {"grouping": grouping, "workers": workers},
            "worker_input": {"max_workers": max_workers},
        }
    )
    start = in_memory(stage, settings, 4)
    return build_runtime(start, build(start), 0)


def reader_of(stage: str, wiring: StageRuntime) -> MetricsReader:
    health = Health(60.0)
    health.runtime = wiring
    return MetricsReader(stage, health)


def read(stage: str, wiring: StageRuntime) -> dict[tuple[str, tuple[str, ...]], float]:
    values = reader_of(stage, wiring).read()
    return {(value.name, value.labels): value.value for value in values if isinstance(value, Sample)}


def work(wiring: StageRuntime, partition: int, keys: Sequence[str]) -> None:
    """Let a stage process a batch of tuples and commit."""
    step, size = wiring.executor.step, len(keys)
    encoded = encode_tuples(
        pa.array(keys, pa.string()).dictionary_encode(), np.ones(size, np.int64), np.arange(size, dtype=np.int64)
    )
    step.assign(partition, None, ())
    list(
        step.process(
            InMemoryBatch(partition, [OutputRecord("any", encoded, headers=internal_headers(TUPLES, {0: 5}))]), 0
        )
    )
    list(step.flush(0))
    wiring.executor.event_times = {at(partition): step.max_event_time(partition) or 0}


def test_metric_names_follow_prometheus_conventions() -> None:
    """Rules for names of `promtool check metrics` and of prometheus.io/docs/practices/naming."""
    assert_none(f"{metric.name}: not {check}" for metric in METRICS for check in problems_of_name(metric))


def problems_of_name(metric: Metric) -> Iterator[str]:
    words = metric.name.split("_")
    inner = words[:-1] if metric.kind == "counter" else words
    types = {"counter", "gauge", "histogram", "summary"}
    units = {"s", "ms", "us", "ns", "sec", "milliseconds", "minutes", "b", "kb", "mb", "percent"}
    checks = {
        "of the form skewless_words": bool(re.fullmatch(r"skewless(_[a-z]+)+", metric.name)),
        "without suffixes of series": not {"count", "sum", "bucket", "total"} & set(inner),
        "without a type": not types & set(words),
        "in base units": not units & set(words),
        "described by a sentence": metric.meaning.endswith("."),
        f"ending with its unit, {metric.unit}": inner[-1] == metric.unit
        or metric.unit not in {"seconds", "bytes", "ratio", "info"},
    }
    return (check for check, holds in checks.items() if not holds)


BOUNDED = {
    "version", "type", "kind", "grouping", "event", "topic", "outcome", "state", "partition", "worker", "direction",
    "cause", "rank", "side", "client",
}  # fmt: skip
"""Labels with few values."""


def test_metric_labels_are_few_and_bounded() -> None:
    assert_none(f"{metric.name}: not {check}" for metric in METRICS for check in problems_of_labels(metric))


def problems_of_labels(metric: Metric) -> Iterator[str]:
    checks = {
        f"of {sorted(BOUNDED)}": set(metric.labels) <= BOUNDED,
        "one label at most": len(metric.labels) <= 1,
        "next to the constant labels": not set(metric.labels) & set(CONSTANT_LABELS),
        "of existing stages": set(metric.stages) <= {stage.name for stage in topology.STAGES},
        "with buckets in order": list(metric.buckets) == sorted(set(metric.buckets)),
    }
    return (check for check, holds in checks.items() if not holds)


def test_metric_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_metric_samples_have_pipeline_and_stage_labels() -> None:
    assert shown(Sample("skewless_router_workers", (), 4)).splitlines()[-1] == (
        'skewless_router_workers{pipeline="p",stage="router"} 4.0'
    )


def test_histogram_observations_are_counted_by_upper_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(seconds)
    lines = shown(HistogramSample("skewless_batch_duration_seconds", (), histogram)).splitlines()[2:]
    assert [
        line.removeprefix("skewless_batch_duration_seconds_").replace('pipeline="p",stage="router"', "")
        for line in lines
    ] == [
        'bucket{le="0.1",} 2.0',
        'bucket{le="1.0",} 3.0',
        'bucket{le="+Inf",} 4.0',
        "count{} 4.0",
        "sum{} 7.65",
    ]


def test_histogram_observation_with_a_trace_is_an_exemplar_of_its_bucket_in_openmetrics() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds, trace_id in ((0.4, "a" * 32), (0.5, "b" * 32), (0.6, None), (7.0, "c" * 32)):
        histogram.observe(seconds, trace_id)
    registry = CollectorRegistry()
    sample = HistogramSample("skewless_batch_duration_seconds", (), histogram)
    registry.register(MetricsCollector((lambda: [sample], HERE)))
    text = openmetrics.generate_latest(registry).decode()  # type: ignore[no-untyped-call]  # the library has no types
    buckets = [line for line in text.splitlines() if "_bucket{" in line]
    assert [line.partition("# ")[2] for line in buckets] == [
        "",
        f'{{trace_id="{"b" * 32}"}} 0.5',
        f'{{trace_id="{"c" * 32}"}} 7.0',
    ]
    assert "trace_id" not in shown(sample)


def test_collector_samples_are_exposed_with_type_and_help() -> None:
    text = shown(
        Sample("skewless_transactions_total", ("committed",), 3),
        Sample("skewless_transactions_total", ("aborted",), 1),
        Sample("skewless_consumer_lag_records", ("0",), 7),
    )
    (transactions, lag) = text_string_to_metric_families(text)
    assert (transactions.type, lag.type) == ("counter", "gauge")
    assert [(sample.labels["outcome"], sample.value) for sample in transactions.samples] == [
        ("committed", 3),
        ("aborted", 1),
    ]
    assert lag.documentation == next(
        metric.meaning for metric in METRICS if metric.name == "skewless_consumer_lag_records"
    )


def test_collector_unknown_metric_is_refused() -> None:
    with pytest.raises(KeyError):
        shown(Sample("skewless_more_total", (), 1))


def test_collector_sample_with_wrong_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        shown(Sample("skewless_tuples_total", ("more",), 1))


def test_router_metrics_after_a_batch_have_its_values() -> None:
    wiring = wired("router", "even")
    work(wiring, 0, ["hot"] * 70 + [f"key {number}" for number in range(30)])
    values = read("router", wiring)
    assert values["skewless_router_info", ("even",)] == 1
    assert values["skewless_router_workers", ()] == 2
    assert values["skewless_tuples_total", ()] == 100
    sent = [values["skewless_router_tuples_total", (str(worker),)] for worker in range(2)]
    assert sum(sent) == 100
    assert [values["skewless_router_rows_total", (str(worker),)] for worker in range(2)] == sent
    assert ("skewless_router_tuples_total", ("2",)) not in values
    assert values["skewless_router_worker_load_share_ratio", ("0",)] == sent[0] / 100
    assert values["skewless_router_max_over_avg_ratio", ()] == max(sent) / 50
    assert values["skewless_router_imbalance_ratio", ()] == (max(sent) - 50) / 100
    assert values["skewless_router_split_keys", ()] == 1
    assert values["skewless_router_max_workers_per_key", ()] == 2
    assert values["skewless_router_key_worker_changes_total", ("grow",)] == 1
    assert values["skewless_router_key_worker_changes_total", ("shrink",)] == 0
    assert values["skewless_router_top_key_share_ratio", ("1",)] == pytest.approx(0.7, abs=0.02)
    assert values["skewless_max_event_timestamp_seconds", ("0",)] == 0.099


@pytest.mark.parametrize("grouping", ["shuffle", "key", "partial_key", "consistent"])
def test_router_metrics_grouping_without_hot_keys_has_no_decisions(grouping: str) -> None:
    names = {name for name, _ in read("router", wired("router", grouping))}
    assert not names & {"skewless_router_split_keys", "skewless_router_key_worker_changes_total"}


@pytest.mark.parametrize("name", ["dynamic_key", "d_choices", "w_choices", "even"])
def test_router_metrics_collected_often_change_no_decision_of_the_grouping(name: str) -> None:
    watched, alone = create(name, 7), create(name, 7)
    looking = RouterMetrics(watched, 7)
    rng = np.random.default_rng(5)
    keys = [f"key {number}" for number in range(300)]
    for step in range(20):
        codes = np.minimum(rng.zipf(1.4, 500), 300).astype(np.int32) - 1
        batch = KeyBatch(keys, codes, np.zeros(500, dtype=np.int64))
        assert watched.assign(batch, step * 20_000).tolist() == alone.assign(batch, step * 20_000).tolist()
        looking.update(step * 20_000)
        assert (
            sum(
                sample.value
                for sample in looking.collect_metrics()
                if sample.name == "skewless_router_top_key_share_ratio"
            )
            <= 1
        )
    grown = {sample.labels: sample.value for sample in looking.collect_metrics() if "changes" in sample.name}
    assert grown["grow",] > 0


@pytest.mark.parametrize("name", ["dynamic_key", "d_choices", "w_choices", "even"])
def test_router_metrics_changed_number_of_workers_counts_no_decision(name: str) -> None:
    wiring = wired("router", name, workers=3)
    work(wiring, 0, ["hot"] * 50)
    before = read("router", wiring)
    wiring.executor.step.set_workers(1)
    list(wiring.executor.step.flush(5_000))
    values = read("router", wiring)
    for direction in ("grow", "shrink"):
        sample = ("skewless_router_key_worker_changes_total", (direction,))
        assert values[sample] == before[sample]


def test_router_metrics_decisions_between_two_collections_are_counted_net() -> None:
    def widths(usual: int, *of_keys: int) -> Widths:
        return Widths(usual, np.array(of_keys, dtype=np.int16))

    assert decisions(widths(1, 1, 1, 3), widths(1, 1, 4, 2)) == (3, 1)
    assert decisions(widths(1, 1, 1), widths(1, 1, 1, 5)) == (4, 0)
    assert decisions(widths(2, 2, 3, 3), widths(2, 2)) == (0, 2)


def test_worker_metrics_several_partitions_have_the_load_of_each() -> None:
    wiring = wired("worker")
    for worker in (0, 2):
        work(wiring, worker, ["a", "a", "b"][: worker + 1])
        wiring.executor.statistics.add_busy_time(worker, 0.25)
    values = {name: value for name, value in read("worker", wiring).items() if name[0].startswith("skewless_worker")}
    assert values == {
        ("skewless_worker_tuples_total", ("0",)): 1,
        ("skewless_worker_tuples_total", ("2",)): 3,
        ("skewless_worker_rows_total", ("0",)): 1,
        ("skewless_worker_rows_total", ("2",)): 3,
        ("skewless_worker_partials_total", ("0",)): 1,
        ("skewless_worker_partials_total", ("2",)): 2,
        ("skewless_worker_keys", ("0",)): 1,
        ("skewless_worker_keys", ("2",)): 2,
        ("skewless_worker_busy_seconds_total", ("0",)): 0.25,
        ("skewless_worker_busy_seconds_total", ("2",)): 0.25,
    }


def test_assigned_partitions_metric_counts_them_by_watermark_state() -> None:
    wiring = wired("router")
    wiring.executor.watermarks = {at(0): 1500, at(1): 900, at(2): MAX_WATERMARK, at(3): None, at(4): None}
    wiring.executor.idle = frozenset({at(1), at(4)})
    values = read("router", wiring)
    states = {labels[0]: value for (name, labels), value in values.items() if name == "skewless_assigned_partitions"}
    assert states == {"active": 1, "idle": 2, "ended": 1, "unknown": 1}
    watermarks = {
        labels: value for (name, labels), value in values.items() if name == "skewless_watermark_timestamp_seconds"
    }
    assert watermarks == {("0",): 1.5}


def test_metrics_reader_clients_are_shown_once_they_have_reported() -> None:
    wiring = wired("router")
    assert not any(name.startswith("skewless_client") for name, _ in read("router", wiring))
    wiring.executor.statistics.consumer.update('{"topics": {"t": {"partitions": {"0": {"fetchq_cnt": 4}}}}}')
    assert wiring.output.client is not None
    wiring.output.client.update('{"msg_cnt": 2, "msg_size": 30, "brokers": {"b": {"throttle": {"sum": 500}}}}')
    values = read("router", wiring)
    assert values["skewless_client_queue_records", ("consumer",)] == 4
    assert values["skewless_client_queue_records", ("producer",)] == 2
    assert values["skewless_client_queue_bytes", ("producer",)] == 30
    assert values["skewless_client_throttle_seconds_total", ("producer",)] == 0.5


@pytest.mark.parametrize(("stage", "ages"), [("router", [3.0]), ("sink", []), ("ranksink", []), ("mirror", [])])
def test_metrics_reader_stage_that_reads_results_has_no_lag_in_seconds(
    monkeypatch: pytest.MonkeyPatch, stage: str, ages: list[float]
) -> None:
    wiring = wired("router")
    monkeypatch.setattr(type(wiring.executor), "lag_s", {at(0): 3.0})
    values = read(stage, wiring)
    assert [value for (name, _), value in values.items() if name == "skewless_consumer_lag_seconds"] == ages


def test_metrics_reader_restore_in_progress_has_what_remains() -> None:
    wiring = wired("aggregator")
    wiring.restore_progress.update("changelog", 0, 40)
    wiring.restore_progress.update("changelog", 1, 2)
    assert read("aggregator", wiring)["skewless_restore_remaining_records", ()] == 42
    wiring.restore_progress.update("changelog", 0, 0)
    assert read("aggregator", wiring)["skewless_restore_remaining_records", ()] == 2


def test_metrics_reader_wait_for_the_output_is_not_busy_before_the_commit() -> None:
    wiring = wired("router")
    statistics, wiring.output.waited_s = wiring.executor.statistics, 8.0  # type: ignore[misc]
    statistics.working._total_and_start = (9.0, None)
    values = read("router", wiring)
    assert values["skewless_time_seconds_total", ("busy",)] == 1
    assert values["skewless_time_seconds_total", ("back_pressured",)] == 8


def test_metrics_reader_times_by_state_are_all_shown() -> None:
    values = read("router", wired("router"))
    states = {labels[0] for name, labels in values if name == "skewless_time_seconds_total"}
    assert states == {"busy", "back_pressured", "restoring", "idle"}


def test_metrics_reader_event_that_never_happened_is_zero() -> None:
    """Otherwise the first dead letter would not be an increase."""
    values = read("router", wired("router"))
    assert values["skewless_produced_records_total", ("dead-letters",)] == 0
    assert values["skewless_transactions_total", ("aborted",)] == 0
    assert values["skewless_recoveries_total", ("producer_replacement",)] == 0
    assert values["skewless_rebalances_total", ("lost",)] == 0


def test_metrics_reader_before_kafka_answers_has_process_metrics_only() -> None:
    names = {value.name for value in MetricsReader("router", Health(60.0)).read()}
    assert names == {
        "skewless_build_info",
        "skewless_allocated_blocks",
        "skewless_memory_limit_bytes",
        "skewless_ready",
    }


def test_metric_series_of_router_and_worker_have_the_documented_number() -> None:
    """Number of series that docs/how-to/watch.md states for W = 100 and four source partitions."""
    counted = {}
    for stage, partitions in (("router", range(4)), ("worker", range(100))):
        wiring = wired(stage, "even", workers=100, max_workers=100)
        for partition in partitions:
            work(wiring, partition, [f"key {number}" for number in range(1_000)])
            wiring.executor.statistics.add_busy_time(partition, 0.1)
        executor, assigned = wiring.executor, [at(partition) for partition in partitions]
        executor.assignment.begin(assigned)
        for partition_of_topic in assigned:
            executor.assignment[partition_of_topic].start(1, None, "committed")
        executor.assignment.started()
        ones = dict.fromkeys(assigned, 1)
        executor.lag, executor.event_times = dict.fromkeys(assigned, 0), ones
        executor.watermarks = dict(ones)
        executor.log_ranges = dict.fromkeys(assigned, (0, 9))
        for client in (executor.statistics.consumer, wiring.output.client):
            assert client is not None
            client.update("{}")
        text = text_of(reader_of(stage, wiring).read)
        counted[stage] = sum(not line.startswith("#") for line in text.splitlines())
    documented = (Path(__file__).parents[3] / "docs" / "how-to" / "watch.md").read_text()
    assert counted == {stage: int(number) for stage, number in DOCUMENTED.findall(documented)}


async def test_metrics_reader_answer_of_a_busy_stage_is_that_of_the_next_scrape() -> None:
    reader, loop, scrapes = MetricsReader("router", Health(60.0)), asyncio.get_running_loop(), []

    def scrape_while_busy() -> None:
        thread = threading.Thread(target=lambda: scrapes.append(reader.read(0.0)))
        thread.start()
        thread.join()

    with reader.on(loop):
        scrape_while_busy()
        await asyncio.sleep(0)
        scrape_while_busy()
    assert [bool(values) for values in scrapes] == [False, True]


def test_metrics_reader_whose_block_ends_during_a_scrape_answers() -> None:
    class Ending(MetricsReader):
        def __getattribute__(self, name: str) -> object:
            value = super().__getattribute__(name)
            if name == "_loop":
                self._loop = None
            return value

    reader = Ending("router", Health(60.0))
    loop = asyncio.new_event_loop()
    with reader.on(loop):
        assert reader.read(0.0) == []
    loop.close()
