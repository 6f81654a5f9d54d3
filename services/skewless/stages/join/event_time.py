"""Event time of the input partitions by their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from skewless import topology
from skewless.algorithms.join.window_join import Side
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState
from skewless.config.stage_start import StageStart
from skewless.wire.join_changelog import JoinCheckpoint, decode_checkpoint


def states(start: StageStart, topic: str, checkpoints: Sequence[str | None]) -> list[WatermarkState]:
    """Return the state of each partition of an input, by its name in the topology."""
    committed = [decode_checkpoint(checkpoint) for checkpoint in checkpoints]
    disorder_ms = None
    if topic in topology.USER_TOPICS:  # otherwise another stage writes the topic, and its watermarks come from there
        disorder_ms = start.settings.joined.rules().disorder_ms(Side(topic))
    return [_state(checkpoint, disorder_ms) for checkpoint in committed]


def _state(checkpoint: JoinCheckpoint, disorder_ms: int | None) -> WatermarkState:
    if checkpoint.ended:
        return WatermarkState(MAX_WATERMARK)
    if disorder_ms is None:
        return WatermarkState(checkpoint.floor)
    known = [checkpoint.floor] if checkpoint.max_time is None else [checkpoint.floor, checkpoint.max_time - disorder_ms]
    return WatermarkState(max((time for time in known if time is not None), default=None))
