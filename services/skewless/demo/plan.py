"""What the demo runs: a data set, windows that suit its time span, and one pipeline per grouping."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skewless.algorithms import grouping
from skewless.datasets import Chunk, DatasetOptions, detect, find_dataset
from skewless.errors import ConfigurationError, unknown
from skewless.settings import PipelineSettings

DEFAULT = "words"
SOURCE_PARTITIONS = 4
GROUPINGS = ("key", "partial_key", "even")
MOST_WINDOWS = 30
PANES = 4
"""Panes per window; panes and ticks are a day at most."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_WINDOWS_S = (
    *(1, 5, 10, 30, _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY),
)


@dataclass(frozen=True)
class Plan:
    """One demo."""

    dataset: str
    options: DatasetOptions
    groupings: tuple[str, ...]
    workers: int
    report: Path | None = None
    """File for the report of the evaluation; None: there is none."""
    prometheus: bool = False
    """Whether a Prometheus watches the pipelines."""

    @property
    def topic(self) -> str:
        """The topic that all pipelines read."""
        return self.dataset

    def pipeline(self, grouping: str, bootstrap: str, window_s: float) -> PipelineSettings:
        """Give the settings of the pipeline of one grouping; its name is the prefix of its topics."""
        return PipelineSettings.model_validate(
            {
                "name": f"{self.dataset}-{grouping.replace('_', '-')}",
                "source": {"topic": self.topic},
                "kafka": {"bootstrap_servers": bootstrap},
                # Recorded time: neither silence nor the clock says anything about it.
                "event_time": {"idle_timeout_s": None, "max_future_s": 100 * 365 * _DAY},
                "splitter": find_dataset(self.dataset).splitter(),
                "router": {"grouping": grouping, "workers": self.workers},
                "worker_input": {"max_workers": self.workers},
                "worker": {"pane_s": min(window_s / PANES, _DAY)},
                "aggregator": {"window_s": window_s, "emit": "final"},
                "observer": {"tick_s": min(window_s, _DAY)},
            }
        )


def make_plan(
    inputs: tuple[Path, ...],
    groupings: tuple[str, ...],
    workers: int,
    report: Path | None = None,
    *,
    prometheus: bool = False,
) -> Plan:
    """Plan a demo of the words of the standard library, or of these files.

    Raises ConfigurationError for groupings that do not exist and for files that cannot be read or do not go together.
    """
    others = sorted(set(groupings) - set(grouping.GROUPINGS))
    if others:
        raise ConfigurationError(f"--grouping: {unknown('grouping', ', '.join(others), grouping.GROUPINGS)}")
    if report is not None and not os.access(report.resolve().parent, os.W_OK):
        raise ConfigurationError(f"--report: {report}: its folder does not exist or cannot be written to")
    kinds = {path: detect(path) for path in inputs}
    if len(set(kinds.values())) > 1:
        raise ConfigurationError(
            "--input: files of different kinds: " + ", ".join(f"{path} holds {kind}" for path, kind in kinds.items())
        )
    dataset = next(iter(kinds.values()), DEFAULT)
    chosen = tuple(dict.fromkeys(groupings)) or GROUPINGS
    return Plan(dataset, DatasetOptions(input=inputs), chosen, workers, report, prometheus)


def window_for(span_ms: int) -> int:
    """Shortest window (seconds) of which the time span has at most MOST_WINDOWS."""
    fitting = (window for window in _WINDOWS_S if span_ms <= MOST_WINDOWS * window * 1000)
    return next(fitting, _WINDOWS_S[-1])


def chunks(plan: Plan) -> Iterator[Chunk]:
    """Read the data set from its beginning; the same records each time."""
    return find_dataset(plan.dataset).chunks(plan.options)
