"""State of a join: checkpoints, and the changelog of held offsets.

The records themselves stay in the input topics. The changelog contains the offsets that are held, one record per block
of `BLOCK_OFFSETS` offsets and side. Its key is `<side>/<block>`, for example `left/12`.

Under at_least_once, a process that is killed may leave changes that belong to no commit. So each value also contains
the block as of the last commit before it, and a restore chooses by the version in its checkpoint.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.join.held_records import decode_block
from skewless.wire.record import OutputRecord

TOPIC = "join-changelog"
_BLOCK = struct.Struct(">QI")
"""Version of a block, and bytes of its previous bitmap. Both bitmaps follow."""


class JoinCheckpoint(NamedTuple):
    """Checkpoint of an input partition."""

    max_time: int | None = None
    """Largest event time so far, in ms."""
    floor: int | None = None
    """Watermark that the partition was given while it was idle."""
    version: int = 0
    """Version of its blocks in the changelog: number of commits that changed them."""
    sources: str = ""
    """Watermarks of the partitions of the user's topic, of a partition that merges them. Otherwise empty."""
    ended: bool = False
    """Whether a bounded run has ended the partition. The next run reads on."""


def encode_checkpoint(checkpoint: JoinCheckpoint) -> str:
    """Return a checkpoint as text."""
    # Without the last fields if they are empty: earlier versions, which may run beside this one, do not know them.
    fields = 5 if checkpoint.ended else 4 if checkpoint.sources else 3
    return msgspec.json.encode(checkpoint[:fields]).decode()


def decode_checkpoint(text: str | None) -> JoinCheckpoint:
    """Decode a checkpoint. Returns an empty one for a partition without a commit."""
    return msgspec.json.decode(text, type=JoinCheckpoint) if text else JoinCheckpoint()


def block_key(side: str, block: int) -> bytes:
    """Return the key of a block."""
    return f"{side}/{block}".encode()


def block_of(key: bytes, side: str) -> int | None:
    """Return the number of the block with this key, None if it is of the other side."""
    name, _, number = key.decode("ascii", "replace").partition("/")
    return int(number) if name == side else None


class Block(NamedTuple):
    """A block of the changelog: the offsets that are held, as a bitmap."""

    side: str
    number: int
    version: int
    """Version of the checkpoint that is committed with it."""
    previous: bytes
    """Bitmap as of the commit before."""
    held: bytes


def block_record(partition: int, block: Block) -> OutputRecord:
    """Return the changelog record of a block."""
    value = _BLOCK.pack(block.version, len(block.previous)) + block.previous + block.held
    return OutputRecord(TOPIC, value, block_key(block.side, block.number), partition)


def tombstone(partition: int, side: str, block: int) -> OutputRecord:
    """Return the record that removes a block without held records."""
    return OutputRecord(TOPIC, None, block_key(side, block), partition)


def held_blocks(changelog: Iterable[tuple[bytes, bytes]], side: str, version: int) -> dict[int, bytes]:
    """Return the bitmaps of a side as of a version by block. Those without held records are empty."""
    blocks = {}
    for key, value in changelog:
        block = block_of(key, side)
        if block is not None:
            written, size = _BLOCK.unpack_from(value)
            bitmaps = value[_BLOCK.size :]
            blocks[block] = bitmaps[size:] if written <= version else bitmaps[:size]
    return blocks


def held_offsets(blocks: Mapping[int, bytes]) -> NDArray[np.int64]:
    """Return the held offsets of blocks, ascending."""
    offsets = [decode_block(block, bitmap) for block, bitmap in sorted(blocks.items())]
    return np.concatenate(offsets) if offsets else np.empty(0, dtype=np.int64)
