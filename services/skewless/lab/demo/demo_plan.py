"""Plans the demo: a live stream with a pipeline per grouping, and a data set with one pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skewless.algorithms.grouping import GROUPING_NAMES
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, unknown
from skewless.lab.datasets import DatasetOptions, RecordBatch, detect, find_dataset
from skewless.lab.demo.demo_table import check_replaceable

DEFAULT = "words"
SOURCE_PARTITIONS = 4
GROUPINGS = ("key", "partial_key", "even")
MAX_WINDOWS = 30
PANES_PER_WINDOW = 4
"""A pane and a tick last at most a day, so long windows have more panes."""

STREAM = "country-published"
"""Data set of the live stream: 80 % of the tuples have one key, 10 % a second one."""
STREAM_S = 15.0
STREAM_RATE = 1000.0
"""Tuples per second of the live stream, as published."""
COST_MS = 10
"""Time that a worker takes for a tuple of the live stream, as published."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_WINDOWS_S = (
    *(1, 5, 10, 30, _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY),
)


@dataclass(frozen=True)
class Plan:
    """Plan of one demo."""

    dataset: str
    options: DatasetOptions
    groupings: tuple[str, ...]
    """Groupings to compare. The last one counts the data set."""
    workers: int
    report: Path | None = None
    """File for the report of the evaluation; None: no report."""
    prometheus: bool = False
    """True if Prometheus scrapes the pipelines."""
    database: Path | None = None
    """File of SQLite for the counts; None: none."""

    @property
    def table(self) -> str:
        """Name of the table of counts."""
        return self.dataset.replace("-", "_")

    @property
    def worker_rate(self) -> float:
        """Tuples of the live stream that one worker can process per second."""
        return 1000 / COST_MS

    @property
    def stream_rate(self) -> float:
        """Tuples per second of the live stream: what all workers can process together, at most the published rate."""
        return min(STREAM_RATE, self.workers * self.worker_rate)

    def live_pipelines(self, bootstrap: str) -> dict[str, PipelineSettings]:
        """Return the settings of the pipelines of the live stream by grouping."""
        return {
            grouping: PipelineSettings.model_validate(
                {
                    "name": f"live-{grouping.replace('_', '-')}",
                    "source": {"topic": STREAM},
                    "kafka": {"bootstrap_servers": bootstrap},
                    "transport": {"commit_interval_s": 0.2},
                    # The stream is in order. So its ticks need not wait for older records.
                    "event_time": {"idle_timeout_s": None, "allowed_lateness_s": 0},
                    "splitter": _splitter(STREAM),
                    "router": {"grouping": grouping, "workers": self.workers},
                    "worker_input": {"max_workers": self.workers},
                    "worker": {"pane_s": 1, "cost": {"cycle": 1, "process_duration_ms": COST_MS}},
                    "aggregator": {"window_s": 5},
                    "observer": {"tick_s": 1},
                    "replicas": {"observer": 0},
                }
            )
            for grouping in self.groupings
        }

    def pipeline(self, bootstrap: str, window_s: float, database: Path | None = None) -> PipelineSettings:
        """Return the settings of the pipeline that counts the data set. Its name is the prefix of its topics.

        With a `database`, it stores the counts in this file of SQLite.
        """
        grouping, sink = self.groupings[-1], None
        if database is not None:
            url = f"sqlite://{quote(str(database.absolute()))}"
            sink = {"url": url, "table": self.table, "transaction_rows": 20_000}
        return PipelineSettings.model_validate(
            {
                "name": f"{self.dataset}-{grouping.replace('_', '-')}",
                "source": {"topic": self.dataset},
                "kafka": {"bootstrap_servers": bootstrap},
                # Event time is recorded time, so it does not depend on idle partitions or on the wall clock.
                "event_time": {"idle_timeout_s": None, "max_ahead_s": 100 * 365 * _DAY},
                "splitter": _splitter(self.dataset),
                "router": {"grouping": grouping, "workers": self.workers},
                "worker_input": {"max_workers": self.workers},
                "worker": {"pane_s": min(window_s / PANES_PER_WINDOW, _DAY)},
                "aggregator": {"window_s": window_s, "emit": "final"},
                "observer": {"tick_s": min(window_s, _DAY)},
                "sink": sink,
            }
        )


def make_plan(  # noqa: PLR0913 - the options of the demo
    inputs: tuple[Path, ...],
    groupings: tuple[str, ...],
    workers: int,
    report: Path | None = None,
    *,
    prometheus: bool = False,
    database: Path | None = None,
) -> Plan:
    """Plan a demo of the words of the standard library, or of the given files.

    Raises ConfigurationError for groupings that do not exist, files that cannot be read, files of different kinds, and
    a database that is not of an earlier demo.
    """
    unknown_groupings = sorted(set(groupings) - set(GROUPING_NAMES))
    if unknown_groupings:
        raise ConfigurationError(f"--grouping: {unknown('grouping', ', '.join(unknown_groupings), GROUPING_NAMES)}")
    for option, file in (("--report", report), ("--database", database)):
        if file is not None and not os.access(file.resolve().parent, os.W_OK):
            raise ConfigurationError(f"{option}: {file}: its folder does not exist or cannot be written to")
    if database is not None:
        check_replaceable(database)
    kinds = {path: detect(path) for path in inputs}
    if len(set(kinds.values())) > 1:
        raise ConfigurationError(
            "--input: files of different kinds: " + ", ".join(f"{path} holds {kind}" for path, kind in kinds.items())
        )
    dataset = next(iter(kinds.values()), DEFAULT)
    distinct_groupings = tuple(dict.fromkeys(groupings)) or GROUPINGS
    return Plan(dataset, DatasetOptions(input=inputs), distinct_groupings, workers, report, prometheus, database)


def _splitter(dataset: str) -> dict[str, Any]:
    """Return the splitter settings of a data set as in a file, because `router.grouping: local` adds to them."""
    return find_dataset(dataset).splitter().model_dump(exclude_unset=True)


def window_for(span_ms: int) -> int:
    """Return the shortest window size (seconds) that cuts the time span into at most MAX_WINDOWS windows."""
    long_enough = (window_s for window_s in _WINDOWS_S if span_ms <= MAX_WINDOWS * window_s * 1000)
    return next(long_enough, _WINDOWS_S[-1])


def record_batches(plan: Plan) -> Iterator[RecordBatch]:
    """Read the data set from its beginning. Each call yields the same records."""
    return find_dataset(plan.dataset).batches(plan.options)
