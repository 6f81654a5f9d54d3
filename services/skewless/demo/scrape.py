"""What the processes of a running pipeline show at /metrics, put together."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from skewless.algorithms.watermark import END_OF_TIME
from skewless.local.supervisor import Replica

TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far a pipeline is."""

    tuples: int = 0
    """Tuples that the aggregators have merged."""
    load: tuple[int, ...] = ()
    """Tuples sent to each worker."""
    lag: int = 0
    """Records of the source that are not yet read and committed."""
    watermark_ms: float | None = None
    """Event time that all aggregator partitions have reached; the end of time when all have ended."""
    memory_bytes: int = 0
    """Resident memory of all processes."""


COUNTERS = {"skewless_tuples_total", "skewless_router_tuples_total"}


class Scraper:
    """Asks the processes again and again; of one that does not answer the last answer counts.

    A process that is started again counts from zero: what its predecessor had counted is added.
    """

    def __init__(self, replicas: Iterable[Replica]) -> None:
        self._replicas = list(replicas)
        self._last: dict[str, list[Sample]] = {}
        self._pids: dict[str, int] = {}
        self._before: list[Sample] = []
        """Counters of the processes that were replaced."""

    def snapshot(self) -> Snapshot:
        """Ask all processes now."""
        for replica in self._replicas:
            if replica.pid is None:  # what it has counted still counts, what it has to do is nothing any more
                left = [sample for sample in self._last.get(replica.name, []) if sample.name != "skewless_lag_records"]
                self._last[replica.name] = left
            elif samples := _ask(replica.metrics_port):
                if self._pids.setdefault(replica.name, replica.pid) != replica.pid:
                    self._before += [sample for sample in self._last[replica.name] if sample.name in COUNTERS]
                self._last[replica.name], self._pids[replica.name] = samples, replica.pid
        return summed([*self._before, *(sample for samples in self._last.values() for sample in samples)])


def summed(samples: Iterable[Sample]) -> Snapshot:
    """Add up what the processes showed."""
    tuples = lag = memory = ended = 0
    load: dict[int, int] = {}
    marks: list[float] = []
    for sample in samples:
        value = int(sample.value)
        match sample.name, sample.labels.get("stage"):
            case "skewless_tuples_total", "aggregator":
                tuples += value
            case "skewless_lag_records", "splitter":
                lag += value
            case "skewless_watermark_seconds", "aggregator":
                marks.append(sample.value * 1000)
            case "skewless_assigned_partitions", "aggregator" if sample.labels["state"] == "ended":
                ended += value
            case "skewless_router_tuples_total", _:
                worker = int(sample.labels["worker"])
                load[worker] = load.get(worker, 0) + value
            case "process_resident_memory_bytes", _:
                memory += value
    reached = min(marks, default=float(END_OF_TIME) if ended else None)
    return Snapshot(tuples, tuple(load[worker] for worker in sorted(load)), lag, reached, memory)


def _ask(port: int) -> list[Sample]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
            text = answer.read().decode()
    except OSError:  # it has not yet begun to listen, or has just ended
        return []
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
