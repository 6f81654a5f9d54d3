"""Windows in a changelog topic: one record per chunk, with columns as value.

The key is `<window start>/<chunk number>/<kind>`, for example `1767225600000/33/changes`. The window start is in ms.
Chunks of a window are numbered in write order. The kind is `changes` for the rows that a flush changed, or `compacted`
for rows that replace earlier chunks. It is `deferred-changes` or `deferred-compacted` if the emission of the rows was
deferred (`aggregator.emit_interval_s`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from skewless.algorithms.watermark import WatermarkTracker, encoded_upstreams
from skewless.algorithms.windowing.window import Chunk, ChunkId
from skewless.algorithms.windowing.window_store import WindowStore
from skewless.errors import ConfigurationError
from skewless.wire.columns import WriteColumns
from skewless.wire.partials import write_partials
from skewless.wire.record import OutputRecord

_KINDS = {
    (False, False): "changes",
    (True, False): "compacted",
    (False, True): "deferred-changes",
    (True, True): "deferred-compacted",
}
"""Name of each kind, by whether a chunk is compacted and whether it is deferred."""
_FLAGS = {name.encode(): flags for flags, name in _KINDS.items()}
_SHOWN_BYTES = 100
"""Maximum bytes of an invalid key in the error message."""


class WindowCheckpoint(msgspec.Struct):
    """Checkpoint of a partition whose windows are in a changelog."""

    watermarks: str = ""
    """Watermarks and idle flags of the worker partitions: the result of `WatermarkTracker.encode`."""
    closed_until: int | None = None
    """Windows that end at or before this time are closed."""
    kept_ms: int | None = None
    """Windows that end this time before `closed_until`, or earlier, have expired. None: an older checkpoint."""
    batch: str | UnsetType = UNSET
    """Last micro-batch of `skewless stream` whose partials are in the windows. The stages do not set it."""
    unsaved: tuple[int, int] | UnsetType = UNSET
    """Offsets (first, and end exclusive) of the partials that the observer has not yet written to its changelog."""


def decode_checkpoint(text: str | None) -> WindowCheckpoint:
    """Decode a checkpoint. Returns an empty one for a partition without a commit."""
    return msgspec.json.decode(text, type=WindowCheckpoint) if text else WindowCheckpoint()


def read_watermarks(checkpoint: WindowCheckpoint, worker_partitions: int | None = None) -> WatermarkTracker:
    """Return the watermarks of all worker partitions. Without `worker_partitions`, of those in the checkpoint."""
    if worker_partitions is None:
        worker_partitions = encoded_upstreams(checkpoint.watermarks) if checkpoint.watermarks else 1
    # Idle worker partitions are not excluded. Each worker partition covers all source partitions: one that is still
    # idle while another is active has tuples left to read, and their windows must not close before.
    watermarks = WatermarkTracker(worker_partitions, exclude_idle=False)
    if checkpoint.watermarks:
        watermarks.decode(checkpoint.watermarks)
    return watermarks


def encode_checkpoint(
    watermarks: WatermarkTracker, windows: WindowStore, unsaved: tuple[int, int] | UnsetType = UNSET
) -> str:
    """Return the checkpoint of a partition as text."""
    checkpoint = WindowCheckpoint(watermarks.encode(), windows.closed_until, windows.kept_ms, unsaved=unsaved)
    return msgspec.json.encode(checkpoint).decode()


def with_batch(checkpoint: str, batch: str) -> str:
    """Return the checkpoint of a partition with the micro-batch whose partials are in its windows."""
    decoded = decode_checkpoint(checkpoint)
    return msgspec.json.encode(msgspec.structs.replace(decoded, batch=batch)).decode()


def encode_chunk_key(window: int, chunk: ChunkId) -> bytes:
    """Return the record key of a chunk."""
    return f"{window}/{chunk.number}/{_KINDS[chunk.compacted, chunk.deferred]}".encode()


def decode_chunk_key(key: bytes) -> tuple[int, ChunkId]:
    """Return the window start and the chunk of a record key. Raises ConfigurationError if the key is malformed."""
    try:
        window, number, kind = key.split(b"/")
        start, chunk = int(window), ChunkId(int(number), *_FLAGS[kind])
        # `int` also accepts spaces, signs and leading zeros.
        is_valid = chunk.number >= 0 and encode_chunk_key(start, chunk) == key
    except (ValueError, KeyError):
        is_valid = False
    if not is_valid:
        raise ConfigurationError(
            f"a changelog topic of windows contains the key {key[:_SHOWN_BYTES]!r}, which is not of the form "
            "<window start>/<chunk number>/<kind>: another program or another version of Skewless "
            "wrote to the topic. Let only this pipeline write to it; if the record cannot be deleted, start a new "
            "pipeline under another name"
        )
    return start, chunk


def window_of(key: bytes) -> int:
    """Return the window start of a record key. Raises ConfigurationError if the key is malformed."""
    return decode_chunk_key(key)[0]


def chunks_by_window(state: Sequence[tuple[bytes, bytes]]) -> Mapping[int, Mapping[ChunkId, bytes]]:
    """Return the values of changelog records (key, value) by window and chunk."""
    by_window: defaultdict[int, dict[ChunkId, bytes]] = defaultdict(dict)
    for key, value in state:
        window, chunk = decode_chunk_key(key)
        by_window[window][chunk] = value
    return by_window


def chunk_output(topic: str, partition: int, chunk: Chunk, write: WriteColumns) -> OutputRecord:
    """Return the changelog record of a chunk. A deleted chunk becomes a tombstone."""
    value = None if chunk.table is None else write_partials(chunk.table, write)
    return OutputRecord(topic, value, encode_chunk_key(chunk.window, chunk.id), partition)
