"""Event time of the input partitions by their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.algorithms.watermark import WatermarkState
from skewless.config.stage_start import StageStart
from skewless.stages.splitter.checkpoint import committed_state


def states(start: StageStart, _topic: str, checkpoints: Sequence[str | None]) -> list[WatermarkState]:
    """Return the state of each partition."""
    lateness_ms = start.settings.event_time.lateness_ms
    return [committed_state(checkpoint, lateness_ms) for checkpoint in checkpoints]
