"""HeldRecords: the records of one side that wait for a partner, by id and by event time."""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_OFFSETS = 4096
"""Offsets of one block of the changelog."""
_REBUILD_ENTRIES = 10_000
"""Entries of the expiry queue without a record that are always tolerated."""
_FREE = -1
"""Offset of a slot without a record."""
_FEW = 8
"""Entries of a chain that a loop looks at: for more, calls of numpy cost less."""


class Records(NamedTuple):
    """Records of one side, one entry each."""

    ids: NDArray[np.object_]
    """Text."""
    times: NDArray[np.int64]
    """Event times in ms."""
    offsets: NDArray[np.int64]
    """Offsets in the log of the side."""
    values: NDArray[np.object_]
    """The records as they came, in bytes."""

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Records:
        """Return some of the records, by index or by mask."""
        return Records(self.ids[rows], self.times[rows], self.offsets[rows], self.values[rows])

    def resized(self, size: int) -> Records:
        """Return a copy with `size` entries. The content of additional entries is undefined."""
        return Records(
            np.resize(self.ids, size), np.resize(self.times, size), np.resize(self.offsets, size),
            np.resize(self.values, size),
        )  # fmt: skip


def records_of(
    ids: Iterable[str], times: NDArray[np.int64], offsets: NDArray[np.int64], values: Iterable[bytes]
) -> Records:
    """Return records from columns of Python objects."""
    return Records(_objects(ids, len(times)), times, offsets, _objects(values, len(times)))


def _objects(items: Iterable[object], count: int) -> NDArray[np.object_]:
    return np.fromiter(items, dtype=np.object_, count=count)


NO_RECORDS = records_of((), np.empty(0, np.int64), np.empty(0, np.int64), ())


class _Block(NamedTuple):
    """Entries of the expiry queue, in the order of their times. An entry is valid while its slot has its offset."""

    times: NDArray[np.int64]
    offsets: NDArray[np.int64]
    slots: NDArray[np.intp]


@dataclass(slots=True)
class _Chain:
    """Slots with the same id and their times, in the order of their offsets, and bounds of the times."""

    slots: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))
    earliest: int = np.iinfo(np.int64).max
    latest: int = np.iinfo(np.int64).min

    def append(self, slot: int, time: int) -> None:
        self.slots.append(slot)
        self.times.append(time)
        self.earliest, self.latest = min(self.earliest, time), max(self.latest, time)

    def pop_first(self, earliest: int, latest: int) -> int:
        """Remove the first slot with a time in the range. Returns it, or -1."""
        if latest < self.earliest or earliest > self.latest:
            return -1
        first = self._first(earliest, latest)
        if first < 0:
            return -1
        del self.times[first]
        return self.slots.pop(first)

    def _first(self, earliest: int, latest: int) -> int:
        for position, time in enumerate(self.times[:_FEW]):
            if earliest <= time <= latest:
                return position
        # One id may have most of the held records, so a loop over all of them could stop the join.
        times = np.frombuffer(self.times, np.int64)
        in_range = (times >= earliest) & (times <= latest)
        first = int(in_range.argmax())
        return first if in_range[first] else -1

    def expire(self, before: int) -> None:
        """Remove the slots with a time below `before`."""
        if self.latest < before:
            del self.slots[:], self.times[:]
            return
        is_kept = np.frombuffer(self.times, np.int64) >= before
        self.slots, self.times = (
            array("q", np.frombuffer(column, np.int64)[is_kept].tobytes()) for column in (self.slots, self.times)
        )


class HeldRecords:
    """Records that wait for a partner. Offsets must be unique.

    Each record has a slot in the columns. The operations on a batch are single calls of numpy and of `dict`, which cost
    less than hashing the ids again for a table of our own. Only ids with several held records take a loop in Python.
    """

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        """Slot of each id with one held record."""
        self._chains: dict[str, _Chain] = {}
        """Slots of each id that has or had several held records."""
        self._columns = NO_RECORDS
        self._free: list[int] = []
        self._expiry: list[tuple[int, int, _Block]] = []
        """Heap of blocks by their first time. A block is the held part of a batch, so it is sorted once."""
        self._entries = 0
        """Entries of all blocks, including those whose record has found a partner."""
        self._added = 0
        """Blocks added so far: orders blocks with the same first time."""
        self._bitmaps: dict[int, bytes] = {}
        """Bitmap of each block with held offsets at the last call of `changed_blocks`."""
        self._changed_offsets: list[NDArray[np.int64]] = []
        """Offsets of the records that were added or removed since then."""
        self._included: set[int] = set()
        """Blocks that the next call of `changed_blocks` returns also without a change."""
        self.bytes = 0
        """Bytes of the values."""

    def __len__(self) -> int:
        return len(self._columns.times) - len(self._free)

    def repeated(self, distinct: set[str]) -> set[str]:
        """Return those of the ids that have held records."""
        return (self._slots.keys() & distinct) | self.chained(distinct)

    def chained(self, distinct: set[str]) -> set[str]:
        """Return those of the ids that may have several held records."""
        return self._chains.keys() & distinct if self._chains else set()

    def find(self, ids: list[str]) -> NDArray[np.intp]:
        """Return the slot of each id, -1 without a held record. No id may be chained."""
        get = self._slots.get
        return np.fromiter((get(record_id, -1) for record_id in ids), dtype=np.intp, count=len(ids))

    def times(self, slots: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the event times of slots."""
        times: NDArray[np.int64] = self._columns.times[slots]
        return times

    def claim(self, ids: list[str]) -> None:
        """Claim the record of each id. No id may be chained. A claimed record must be removed by `pop_claimed`."""
        deque(map(self._slots.__delitem__, ids), maxlen=0)

    def claim_first(self, record_id: str, earliest: int, latest: int) -> int:
        """Claim the first record by offset with this id and a time in the range. Returns its slot, or -1."""
        slot = self._slots.get(record_id)
        if slot is not None:
            if not earliest <= self._columns.times[slot] <= latest:
                return -1
            del self._slots[record_id]
            return slot
        chain = self._chains.get(record_id)
        if chain is None:
            return -1
        slot = chain.pop_first(earliest, latest)
        if not chain.slots:
            del self._chains[record_id]
        return slot

    def add(self, records: Records) -> None:
        """Hold records. Records with the same id must be added in the order of their offsets."""
        count = len(records.times)
        if not count:
            return
        slots = self._allocate(count)
        slot_array = np.array(slots, dtype=np.intp)
        for column, new in zip(self._columns, records, strict=True):
            column[slot_array] = new
        self._index(records.ids.tolist(), slots)
        self._add_block(records.times, records.offsets, slot_array)
        self.bytes += sum(map(len, records.values))
        self._changed_offsets.append(records.offsets)

    def _allocate(self, count: int) -> list[int]:
        missing = count - len(self._free)
        if missing > 0:
            size = len(self._columns.times)
            grown = size + max(missing, size // 2)
            self._columns = self._columns.resized(grown)
            self._clear(np.arange(size, grown))
            self._free += range(grown - 1, size - 1, -1)
        slots = self._free[-count:]
        del self._free[-count:]
        return slots

    def _clear(self, slots: NDArray[np.intp]) -> None:
        self._columns.offsets[slots] = _FREE
        self._columns.ids[slots] = None
        self._columns.values[slots] = None

    def _index(self, ids: list[str], slots: list[int]) -> None:
        distinct = set(ids)
        if len(distinct) == len(ids) and not self.repeated(distinct):
            self._slots.update(zip(ids, slots, strict=True))
            return
        times = self._columns.times
        for record_id, slot in zip(ids, slots, strict=True):
            chain = self._chains.get(record_id)
            if chain is None:
                if record_id not in self._slots:
                    self._slots[record_id] = slot
                    continue
                first = self._slots.pop(record_id)
                chain = self._chains[record_id] = _Chain()
                chain.append(first, int(times[first]))
            chain.append(slot, int(times[slot]))

    def _add_block(self, times: NDArray[np.int64], offsets: NDArray[np.int64], slots: NDArray[np.intp]) -> None:
        order = np.lexsort((offsets, times))
        self._push(_Block(times[order], offsets[order], slots[order]))
        self._entries += len(slots)
        if self._entries > 2 * len(self) + _REBUILD_ENTRIES:
            self._rebuild_expiry()

    def _push(self, block: _Block) -> None:
        heapq.heappush(self._expiry, (int(block.times[0]), self._added, block))
        self._added += 1

    def _rebuild_expiry(self) -> None:
        """Drop the entries whose record has found a partner, so that they do not take memory until they expire."""
        held = np.flatnonzero(self._columns.offsets != _FREE)
        self._expiry.clear()
        self._entries = 0
        if len(held):
            self._add_block(self._columns.times[held], self._columns.offsets[held], held)

    def pop_claimed(self, slots: NDArray[np.intp]) -> Records:
        """Remove claimed records and return them."""
        records = self._columns.take(slots)
        self._clear(slots)
        self._free += slots.tolist()
        self.bytes -= sum(map(len, records.values))
        self._changed_offsets.append(records.offsets)
        return records

    def expire(self, before: int) -> Records:
        """Remove the records with a time below `before` and return them, by time and offset."""
        expired = []
        while self._expiry and self._expiry[0][0] < before:
            block = heapq.heappop(self._expiry)[2]
            end = int(np.searchsorted(block.times, before))
            self._entries -= end
            if end < len(block.times):
                self._push(_Block(*(column[end:] for column in block)))
            slots = block.slots[:end]
            expired.append(slots[self._columns.offsets[slots] == block.offsets[:end]])
        if not expired:
            return NO_RECORDS
        slots = np.concatenate(expired)
        slots = slots[np.lexsort((self._columns.offsets[slots], self._columns.times[slots]))]
        ids = self._columns.ids[slots].tolist()
        if self._chains:
            for record_id in self.chained(set(ids)):
                self._chains[record_id].expire(before)
                if not self._chains[record_id].slots:
                    del self._chains[record_id]
            ids = [record_id for record_id in ids if record_id in self._slots]
        self.claim(ids)
        return self.pop_claimed(slots)

    def include_blocks(self, blocks: Iterable[int]) -> None:
        """Let the next call of `changed_blocks` return these blocks, too."""
        self._included.update(blocks)

    def changed_blocks(self) -> Mapping[int, bytes]:
        """Return the changed blocks since the last call by number: a bitmap of the held offsets, empty without any.

        Bit `i` of byte `j` is offset `8 * j + i` of the block. There are no trailing zeros.
        """
        changed = {number: self._bitmaps.get(number, b"") for number in self._included}
        offsets = np.sort(np.concatenate((NO_RECORDS.offsets, *self._changed_offsets)))
        numbers, starts = np.unique(offsets // BLOCK_OFFSETS, return_index=True)
        for number, part in zip(numbers.tolist(), np.split(offsets, starts)[1:], strict=True):
            changed[number] = _toggled(self._bitmaps.pop(number, b""), part)
        self._bitmaps.update({number: bitmap for number, bitmap in changed.items() if bitmap})
        self._changed_offsets.clear()
        self._included.clear()
        return dict(sorted(changed.items()))


def _toggled(bitmap: bytes, offsets: NDArray[np.int64]) -> bytes:
    """Return the bitmap of a block with the bit of each offset inverted. Two equal offsets change nothing."""
    padded = bitmap.ljust(BLOCK_OFFSETS // 8, b"\0")
    bits = np.unpackbits(np.frombuffer(padded, dtype=np.uint8), bitorder="little")
    times = np.bincount(offsets % BLOCK_OFFSETS, minlength=BLOCK_OFFSETS)
    return np.packbits((times + bits) & 1, bitorder="little").tobytes().rstrip(b"\0")


def decode_block(number: int, bitmap: bytes) -> NDArray[np.int64]:
    """Return the offsets in the bitmap of a block, ascending."""
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8), bitorder="little")
    offsets: NDArray[np.int64] = np.flatnonzero(bits) + number * BLOCK_OFFSETS
    return offsets
