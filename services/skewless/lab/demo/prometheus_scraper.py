"""Scrapes /metrics of the processes of a running pipeline and aggregates the samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from skewless import topology
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.lab.local import loopback
from skewless.lab.local.supervisor import Replica

COUNTERS = {"skewless_tuples_total", "skewless_router_rows_total"}
OF_RUNNING = {"skewless_consumer_lag_records", "process_resident_memory_bytes"}
"""Metrics that an ended process no longer has. Its counters still count."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Progress of a pipeline at one time."""

    tuples: int = 0
    """Tuples that the aggregators have merged."""
    load: tuple[int, ...] = ()
    """Rows sent to each worker."""
    lag: int = 0
    """Records of the source that are not yet read and committed."""
    waiting: int = 0
    """Records of all topics that the stages have not yet read and committed."""
    watermark_ms: float | None = None
    """Minimum watermark of the aggregator partitions; MAX_WATERMARK when all have ended."""
    memory_bytes: int = 0
    """Resident memory of all processes."""


class Scraper:
    """Scrapes the processes repeatedly. For a process that does not answer, the last samples are used.

    The counters of a restarted process begin at zero, so the counters of its previous incarnations are added.
    """

    def __init__(self, replicas: Iterable[Replica]) -> None:
        self._replicas = list(replicas)
        self._last: dict[str, list[Sample]] = {}
        """Last samples by replica."""
        self._pids: dict[str, int] = {}
        """Process ids of the last samples by replica."""
        self._previous_counters: list[Sample] = []
        """Last counters of the processes that were replaced."""

    def snapshot(self) -> Snapshot:
        """Scrape all processes and return their sums."""
        for replica in self._replicas:
            name = replica.name
            if replica.pid is None:
                self._last[name] = [sample for sample in self._last.get(name, []) if sample.name not in OF_RUNNING]
            elif samples := _scrape(replica.metrics_port):
                if self._pids.setdefault(name, replica.pid) != replica.pid:
                    self._previous_counters += [sample for sample in self._last[name] if sample.name in COUNTERS]
                self._last[name], self._pids[name] = samples, replica.pid
        last_samples = (sample for samples in self._last.values() for sample in samples)
        return aggregate([*self._previous_counters, *last_samples])


def aggregate(samples: Iterable[Sample]) -> Snapshot:
    """Aggregate the samples of all processes."""
    tuples = lag = waiting = memory = ended_partitions = 0
    load: dict[int, int] = {}
    watermarks: list[float] = []
    for sample in samples:
        value, stage = int(sample.value), sample.labels.get("stage")
        writes_results = stage == topology.RESULTS_STAGE
        match sample.name:
            case "skewless_tuples_total" if writes_results:
                tuples += value
            case "skewless_consumer_lag_records":
                waiting += value
                lag += value if stage == topology.SOURCE_STAGE else 0
            case "skewless_watermark_timestamp_seconds" if writes_results:
                watermarks.append(sample.value * 1000)
            case "skewless_assigned_partitions" if writes_results and sample.labels["state"] == "ended":
                ended_partitions += value
            case "skewless_router_rows_total":
                worker = int(sample.labels["worker"])
                load[worker] = load.get(worker, 0) + value
            case "process_resident_memory_bytes":
                memory += value
    watermark_ms = min(watermarks, default=float(MAX_WATERMARK) if ended_partitions else None)
    return Snapshot(tuples, tuple(load[worker] for worker in sorted(load)), lag, waiting, watermark_ms, memory)


def _scrape(port: int) -> list[Sample]:
    """Return the samples of a process, or none if it does not listen yet or has just ended."""
    try:
        text = loopback.read(f"http://127.0.0.1:{port}/metrics")
    except OSError:
        return []
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
