"""Checkpoints of the stages left and right: the event time of one partition of the user's topic."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from skewless.algorithms.watermark import WatermarkGenerator, WatermarkState


class RepartitionCheckpoint(NamedTuple):
    """Checkpoint of an input partition."""

    max_time: int | None = None
    """Largest event time so far, in ms."""
    idle: bool = False
    min_time: int | None = None
    """Smallest event time that was written, in ms."""


def encode_checkpoint(checkpoint: RepartitionCheckpoint) -> str:
    """Return a checkpoint as text."""
    return msgspec.json.encode(checkpoint).decode()


def decode_checkpoint(text: str | None) -> RepartitionCheckpoint:
    """Decode a checkpoint. Returns an empty one for a partition without a commit."""
    return msgspec.json.decode(text, type=RepartitionCheckpoint) if text else RepartitionCheckpoint()


def first_state(text: str | None, disorder_ms: int) -> WatermarkState:
    """Return a bound of the times of all records of an input partition that are written, before and after a checkpoint.

    Without records so far it has no watermark. The partition may be idle then.
    """
    committed = decode_checkpoint(text)
    watermark = WatermarkGenerator(disorder_ms, committed.max_time).watermark()
    if committed.min_time is None or watermark is None:
        return WatermarkState(idle=committed.idle and watermark is None)
    return WatermarkState(min(committed.min_time, watermark))
