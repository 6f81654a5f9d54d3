"""Builds records as a consumer returns them."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message


def message(  # noqa: PLR0913 - keyword arguments, one per attribute of a record
    offset: int,
    value: bytes | None = b"x",
    *,
    topic: str = "in",
    partition: int = 0,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_ms: int = 0,
) -> Message:
    """Return a record without an error."""
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        value=value,
        key=key,
        headers=list(headers),
        timestamp=(TIMESTAMP_CREATE_TIME, timestamp_ms),
    )
