"""Event time of the input partitions by their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.algorithms.watermark import WatermarkState
from skewless.config.stage_start import StageStart
from skewless.stages.router.upstream import Upstream


def states(start: StageStart, _topic: str, checkpoints: Sequence[str | None]) -> list[WatermarkState]:
    """Return the state of each partition."""
    only = start.settings.aggregated.topic
    return [Upstream(p, len(checkpoints), checkpoint, only).state for p, checkpoint in enumerate(checkpoints)]
