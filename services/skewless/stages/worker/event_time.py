"""Event time of the input partitions by their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.algorithms.watermark import WatermarkState, WatermarkTracker
from skewless.config.stage_start import StageStart


def states(start: StageStart, _topic: str, checkpoints: Sequence[str | None]) -> list[WatermarkState]:
    """Return the combined state of all source partitions, as each partition knows it."""
    trackers = [WatermarkTracker(start.count_partitions("tuples")) for _ in checkpoints]
    for tracker, checkpoint in zip(trackers, checkpoints, strict=True):
        if checkpoint:
            tracker.decode(checkpoint)
    return [tracker.state() for tracker in trackers]
