"""Metrics of a router: load of its workers and decisions of its grouping. Sampled at intervals, not per tuple."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping import Grouping
from skewless.algorithms.grouping.base import Widths
from skewless.algorithms.load_metrics import imbalance, max_over_avg
from skewless.engine.step import TOP_KEYS, Sample
from skewless.metric_definition import Metric

METRICS = (
    Metric("skewless_router_info", "Always 1; the label is the grouping.", labels=("grouping",)),
    Metric("skewless_router_workers", "Number of workers that receive tuples."),
    Metric("skewless_router_tuples_total", "Tuples sent to each worker partition.", labels=("worker",)),
    Metric(
        "skewless_router_rows_total",
        "Rows sent to each worker partition, by which the load is measured: tuples, or rows in which the splitter has"
        " aggregated tuples.",
        labels=("worker",),
    ),
    Metric(
        "skewless_router_worker_load_share_ratio",
        "Share of each worker in the rows of this router, over the last 10 s that had rows.",
        labels=("worker",),
    ),
    Metric("skewless_router_imbalance_ratio", "(Most loaded worker - average) / rows, over the same 10 s."),
    Metric(
        "skewless_router_max_over_avg_ratio",
        "Most loaded worker / average, over the same 10 s. 1 is balanced; 2 halves the throughput if workers are the"
        " bottleneck.",
    ),
    Metric(
        "skewless_router_split_keys",
        "Keys (with even: buckets of keys) that may use more workers than every key may. Only for groupings that decide"
        " this per key.",
    ),
    Metric(
        "skewless_router_max_workers_per_key",
        "Maximum number of workers that one key (with even: one bucket) may use. Only for groupings that decide this"
        " per key.",
        unit="workers",
    ),
    Metric(
        "skewless_router_key_worker_changes_total",
        "Workers added to keys (grow) and removed from keys (shrink), net per second. Only for groupings that decide"
        " this per key.",
        labels=("direction",),
        unit="workers",
    ),
    Metric(
        "skewless_router_top_key_share_ratio",
        "Share of the hottest keys that the grouping tracks in the rows of this router, rank 1 to 10 (with even:"
        " buckets).",
        labels=("rank",),
    ),
)
"""Definitions of the metrics that only this stage has."""

LOAD_MS = 10_000
"""Time window of the load metrics in ms."""
WIDTHS_MS = 1_000
"""Interval in ms at which the decisions of the grouping are sampled."""


class RouterMetrics:
    """Metrics of a grouping and of the rows that it sent to each worker. `now` is the wall-clock time in ms."""

    def __init__(self, grouping: Grouping, max_workers: int) -> None:
        self._grouping = grouping
        self._sent = [0] * max_workers
        """Rows by worker since the process started. A list, because single increments of an array are slower."""
        self._tuples = [0] * max_workers
        """Tuples in these rows."""
        self._recent = np.zeros(max_workers, dtype=np.int64)
        """Rows by worker in the last complete window."""
        self._sent_before = np.zeros(max_workers, dtype=np.int64)
        """`_sent` at the start of the current window."""
        self._window_start: int | None = None
        """Time of the first rows of the current window. None while there are none."""
        self._next_sample_at = 0
        self._widths = grouping.widths()
        self._grown = self._shrunk = 0

    def count(self, worker: int, rows: int, tuples: int) -> None:
        """Count rows that were sent to a worker, and the tuples in them."""
        self._sent[worker] += rows
        self._tuples[worker] += tuples

    def update(self, now: int) -> None:
        """Sample the load and the decisions if their intervals are over."""
        self._update_load(now)
        # The clock may be set back, so a due time too far ahead counts as past.
        if not now < self._next_sample_at <= now + WIDTHS_MS:
            self._next_sample_at = now + WIDTHS_MS
            self._update_decisions()

    def _update_load(self, now: int) -> None:
        """Publish the load of a complete window. After a pause, the next window starts with its first rows.

        The very first window is published while it is incomplete.
        """
        is_running = self._window_start is not None and 0 <= now - self._window_start < LOAD_MS
        if is_running and self._sent_before.any():
            return
        sent = np.array(self._sent)
        load = sent - self._sent_before
        if not load.any():
            self._window_start = self._window_start if is_running else None
            return
        if self._window_start is None:
            self._window_start = now
        elif not is_running:
            self._recent, self._sent_before, self._window_start = load, sent, now
        if not self._sent_before.any():
            self._recent = load

    def reset(self) -> None:
        """Start again from the current workers per key: a resize or a restore is not a decision of the grouping."""
        self._widths = self._grouping.widths()

    def _update_decisions(self) -> None:
        previous, current = self._widths, self._grouping.widths()
        self._widths = current
        if previous is None or current is None:
            return
        grown, shrunk = decisions(previous, current)
        self._grown += grown
        self._shrunk += shrunk

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield all metrics."""
        workers = self._grouping.workers
        yield Sample("skewless_router_info", (self._grouping.name,), 1)
        yield Sample("skewless_router_workers", (), workers)
        for worker, (tuples, rows) in enumerate(zip(self._tuples, self._sent, strict=True)):
            if rows or worker < workers:
                yield Sample("skewless_router_tuples_total", (str(worker),), tuples)
                yield Sample("skewless_router_rows_total", (str(worker),), rows)
        yield from self._load(workers)
        yield from self._decisions()
        for rank, share in enumerate(self._grouping.top_key_shares(TOP_KEYS).tolist(), start=1):
            yield Sample("skewless_router_top_key_share_ratio", (str(rank),), share)

    def _load(self, workers: int) -> Iterator[Sample]:
        load = self._recent[:workers]
        if not load.any():
            return
        for worker, share in enumerate((load / load.sum()).tolist()):
            yield Sample("skewless_router_worker_load_share_ratio", (str(worker),), share)
        yield Sample("skewless_router_imbalance_ratio", (), imbalance(load))
        yield Sample("skewless_router_max_over_avg_ratio", (), max_over_avg(load))

    def _decisions(self) -> Iterator[Sample]:
        widths = self._widths
        if widths is None:
            return
        yield Sample("skewless_router_split_keys", (), int((widths.of_keys > widths.usual).sum()))
        yield Sample("skewless_router_max_workers_per_key", (), int(widths.of_keys.max(initial=widths.usual)))
        yield Sample("skewless_router_key_worker_changes_total", ("grow",), self._grown)
        yield Sample("skewless_router_key_worker_changes_total", ("shrink",), self._shrunk)


def decisions(previous: Widths, current: Widths) -> tuple[int, int]:
    """Return the number of workers added to keys and removed from keys between two samples.

    A key that a sample does not track has the usual number of workers.
    """
    size = max(len(previous.of_keys), len(current.of_keys))
    change = _padded(current, size) - _padded(previous, size)
    added = int(change[change > 0].sum())
    return added, added - int(change.sum())


def _padded(widths: Widths, size: int) -> NDArray[np.int64]:
    tracked = widths.of_keys.astype(np.int64)
    return np.pad(tracked, (0, size - len(tracked)), constant_values=widths.usual)
