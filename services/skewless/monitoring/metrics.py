"""List of all metrics at /metrics, except those of the operating system process.

Counters count the work of this process. Records that are processed again after an aborted transaction count again.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace

from skewless import topology
from skewless.metric_definition import CONSTANT_LABELS, PREFIX, Metric
from skewless.monitoring.common_metrics import EVERY_STAGE

__all__ = ["CONSTANT_LABELS", "METRICS", "PREFIX", "Metric"]


def _of_stages() -> Iterator[Metric]:
    """Yield the metrics of single stages, each once, with the stages that have it."""
    stages: dict[Metric, tuple[str, ...]] = {}
    for stage in topology.STAGES:
        for metric in importlib.import_module(stage.metrics).METRICS:
            stages[metric] = (*stages.get(metric, ()), stage.name)
    return (replace(metric, stages=names) for metric, names in stages.items())


METRICS = (*EVERY_STAGE, *_of_stages())
