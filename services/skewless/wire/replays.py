"""Records of topic `replays`: which records `skewless dead-letters replay` has written again."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skewless.wire.record import OutputRecord


class Replay(msgspec.Struct):
    """A record that was written again, to the topic and from the position that are the key."""

    reason: Annotated[str, Meta(description="Reason why it was invalid.")]
    attempt: Annotated[int, Meta(description="Number of its replays so far, with this one.", ge=1)]


def replay_record(topic: str, target: str, position: str, replay: Replay) -> OutputRecord:
    """Return the record of a replay to `target`. `topic` is the full name of the topic `replays`."""
    return OutputRecord(topic, msgspec.json.encode(replay), f"{target}/{position}".encode(), 0)


def read_replay_key(key: bytes) -> tuple[str, str, int, int]:
    """Return the target, and the topic, partition and offset of the record."""
    target, topic, partition, offset = key.decode().split("/")
    return target, topic, int(partition), int(offset)
