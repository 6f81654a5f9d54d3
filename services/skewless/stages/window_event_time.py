"""Event time of the stages that merge partials into windows, by the checkpoints of their partitions."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.algorithms.watermark import WatermarkState
from skewless.config.stage_start import StageStart
from skewless.wire.changelog import decode_checkpoint, read_watermarks


def states(_start: StageStart, _topic: str, checkpoints: Sequence[str | None]) -> list[WatermarkState]:
    """Return the state of each partition."""
    return [read_watermarks(decode_checkpoint(checkpoint)).state() for checkpoint in checkpoints]
