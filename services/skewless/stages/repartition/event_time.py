"""Event time of the input partitions by their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from skewless.algorithms.join.window_join import Side
from skewless.algorithms.watermark import WatermarkState
from skewless.config.stage_start import StageStart
from skewless.wire.repartition_checkpoint import committed_state


def states(start: StageStart, topic: str, checkpoints: Sequence[str | None]) -> list[WatermarkState]:
    """Return the state of each partition. `topic` is the name of the side."""
    disorder_ms = start.settings.joined.rules().disorder_ms(Side(topic))
    return [committed_state(checkpoint, disorder_ms) for checkpoint in checkpoints]
