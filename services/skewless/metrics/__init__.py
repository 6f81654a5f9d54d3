"""THE list of metrics: everything that a process shows at /metrics beside what the operating system knows of it.

Counters count work done by this process: what a rewind repeats counts again.
"""

from __future__ import annotations

from skewless.metrics.base import CONSTANT_LABELS, PREFIX, Metric
from skewless.metrics.every_stage import EVERY_STAGE
from skewless.metrics.of_stages import OF_STAGES

__all__ = ["CONSTANT_LABELS", "METRICS", "PREFIX", "Metric"]

METRICS = (*EVERY_STAGE, *OF_STAGES)
