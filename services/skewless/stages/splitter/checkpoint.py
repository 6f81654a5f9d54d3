"""Checkpoint of a source partition: event time, the start of the partition, and where its held tuples are."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Held(NamedTuple):
    """Records of a source partition with held tuples (`splitter.local.mode: windows`), which a restart reads again.

    The held tuples are those of the range that are not late, and not before `floor`. The range contains no
    record that was refused because of the clock or of an unknown schema, so reading it again gives the same tuples.
    """

    offset: int
    """Offset of the first record with a held tuple."""
    end: int
    """Offset after the last record that was read."""
    max_time: int | None
    """Largest event time in ms of the records before the range."""
    floor: int | None
    """End in ms of the newest local window that was closed. Tuples before it were sent."""
    tuples: int
    settings: str
    """Digest of the settings by which the tuples were read."""
    window_ms: int = 0
    """Length of the local windows. With another length, the tuples are sent at once."""


class Checkpoint(NamedTuple):
    """Checkpoint of a source partition."""

    max_time: int | None = None
    """Largest event time so far. With it, a restart does not change which tuples are late."""
    idle: bool = False
    start: int | None = None
    """Offset of the first record that the pipeline reads. None before it has read one, and if an earlier version has
    read the partition from its beginning."""
    held: Held | None = None
    """None if no tuples are held."""
    batch: str | None = None
    """Last micro-batch of `skewless stream` that is complete. None if the stages run the pipeline."""


_decode = msgspec.json.Decoder(Checkpoint).decode
_ALWAYS = 2
"""Number of fields that each checkpoint has. The others are left out if they and those after them are None."""


def decode_checkpoint(text: str | None) -> Checkpoint:
    """Return a checkpoint; that of a partition of which no record was read if there is none."""
    return _decode(text) if text else Checkpoint()


def encode_checkpoint(checkpoint: Checkpoint) -> str:
    """Return the text of a checkpoint."""
    fields = list(checkpoint)
    while len(fields) > _ALWAYS and fields[-1] is None:
        fields.pop()
    return msgspec.json.encode(fields).decode()


def first_checkpoint(offset: int) -> str:
    """Return the checkpoint of a partition of which no record was read yet, and that starts at an offset."""
    return encode_checkpoint(Checkpoint(start=offset))


def start_of(checkpoint: str | None) -> int | None:
    """Return the offset of the first record that the pipeline reads of a partition; None if it has read none."""
    decoded = decode_checkpoint(checkpoint)
    return 0 if decoded.start is None and decoded.max_time is not None else decoded.start
