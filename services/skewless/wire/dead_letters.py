"""Dead letters: invalid records with their topic, partition and offset, and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import UNSET, Meta, UnsetType

from skewless.algorithms.record_size import split_by_size
from skewless.wire.columns import write_table
from skewless.wire.headers import ARROW, BYTES, public_headers
from skewless.wire.partials import write_partials
from skewless.wire.record import Batch, OutputRecord, OwnHeaders, public_timestamp

DEAD_LETTER = "skewless.dead-letter.v1"
DEAD_LETTER_VALUE_BYTES = 900_000
"""Maximum bytes of an invalid record's value in its dead letter. They fit Kafka's default message size."""
DEAD_LETTER_KEY_BYTES = 65_536
"""Maximum bytes of an invalid record's key in its dead letter."""

WINDOW_EXPIRED = "window has expired"
"""Reason of a dead letter with partials of a window that was deleted before they arrived."""

Digits = Annotated[str, Meta(pattern="^[0-9]+$")]
_TRACEBACK = "End of the traceback, if the function of `splitter.python` failed."
_SIZE = "Size of its {} in bytes, if the dead letter contains only the first {} bytes."


class DeadLetterHeaders(msgspec.Struct, rename=lambda name: f"__skewless.errors.{name}"):
    """Headers of a dead letter in addition to schema and content type, as UTF-8 text (the fields of KIP-1034)."""

    topic: Annotated[str, Meta(description="Topic of the invalid record.")]
    partition: Annotated[Digits, Meta(description="Its partition.")]
    offset: Annotated[Digits, Meta(description="Its offset.")]
    reason: Annotated[str, Meta(description="Reason why it is invalid.", min_length=1)]
    value_bytes: Annotated[Digits, Meta(description=_SIZE.format("value", "900,000"))] | UnsetType = UNSET
    key_bytes: Annotated[Digits, Meta(description=_SIZE.format("key", "65,536"))] | UnsetType = UNSET
    traceback: Annotated[str, Meta(description=_TRACEBACK)] | UnsetType = UNSET


def dead_letter(topic: str, batch: Batch, index: int, reason: str, traceback: str | None = None) -> OutputRecord:
    """Return the dead letter of an invalid record: its key and value, with its offset and the reason in headers.

    A key or value that is too large is cut off, and a header contains its size. The complete record is at its offset.
    """
    value, key = batch.values[index], batch.keys[index]
    headers = _headers_of(topic, batch, index, reason)
    if traceback is not None:
        headers.traceback = traceback
    if value is not None and len(value) > DEAD_LETTER_VALUE_BYTES:
        value, headers.value_bytes = value[:DEAD_LETTER_VALUE_BYTES], str(len(value))
    if key is not None and len(key) > DEAD_LETTER_KEY_BYTES:
        key, headers.key_bytes = key[:DEAD_LETTER_KEY_BYTES], str(len(key))
    timestamp = public_timestamp(int(batch.timestamps[index]))
    return OutputRecord("dead-letters", value, key, timestamp=timestamp, headers=_encode(headers, BYTES))


def dead_letter_rows(topic: str, batch: Batch, index: int, rows: pa.Table, reason: str) -> Iterator[OutputRecord]:
    """Yield rejected rows of a valid record as dead letters of bounded size."""
    headers = _encode(_headers_of(topic, batch, index, reason), ARROW)
    for part in split_by_size(rows, DEAD_LETTER_VALUE_BYTES):
        yield OutputRecord("dead-letters", write_partials(part, write_table), headers=headers)


def _headers_of(topic: str, batch: Batch, index: int, reason: str) -> DeadLetterHeaders:
    return DeadLetterHeaders(topic, str(batch.partition), str(batch.offsets[index]), reason)


def _encode(headers: DeadLetterHeaders, content_type: str) -> OwnHeaders:
    of_record = [(name, text.encode()) for name, text in msgspec.to_builtins(headers).items()]
    return [*public_headers(DEAD_LETTER, content_type), *of_record]
