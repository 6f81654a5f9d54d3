"""SpaceSaving: the hottest keys of a stream with a fixed number of counters (Metwally et al., ICDT 2005).

Counters are stored in the order of their counts, in blocks of equal count. When a count grows by one, its counter moves
to the end of its block, and from there into the next block. The cost of a tuple therefore does not depend on the number
of counters. This is the stream summary of the paper, with arrays instead of linked lists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.jit import jit

EMPTY = -1
"""Value of a table slot without a counter."""


class Counters(NamedTuple):
    """The arrays of a sketch. A counter with count 0 has no key."""

    keys: NDArray[np.int64]
    """Per counter: the 64-bit hash of its key."""
    errors: NDArray[np.int64]
    """Per counter: upper bound of the part of its count that belongs to previous keys of the counter."""
    blocks: NDArray[np.int32]
    """Per counter: its block."""
    places: NDArray[np.int32]
    """Per counter: its place in `order`."""
    order: NDArray[np.int32]
    """The counters, lowest count first."""
    counts: NDArray[np.int64]
    """Per block: the count of all its counters."""
    ends: NDArray[np.int32]
    """Per block: its last place in `order`."""
    unused: NDArray[np.int32]
    """The number of unused blocks, followed by these blocks."""
    table: NDArray[np.int32]
    """Open-addressing hash table of the counters by key. Its size is a power of two, and at least half is empty."""


class SpaceSaving:
    """Counts keys, given as 64-bit hashes, with `capacity` counters. Keys with the same hash count as one key.

    An estimate is at least the true count, and exceeds it by at most its error. An error is at most total / capacity.
    Every key with more than total / capacity tuples has a counter.
    """

    def __init__(self, capacity: int) -> None:
        no_entries = np.empty(0, dtype=np.int64)
        self._counters = _counters(capacity, no_entries, no_entries, no_entries)
        self.total = 0
        """Number of counted tuples."""

    def update(self, codes: NDArray[np.int32], hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count tuples with the keys `hashes[codes]`. Returns the estimate of each tuple's key after the tuple."""
        self.total += len(codes)
        return _count(codes, hashes, self._counters)

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return hash, estimate and error of every key with a counter, lowest estimate first."""
        counters = self._counters
        counts = counters.counts[counters.blocks[counters.order]]
        order = counters.order[np.searchsorted(counts, 1) :]
        return counters.keys[order], counters.counts[counters.blocks[order]], counters.errors[order]

    def above(self, count: float) -> NDArray[np.int64]:
        """Return all estimates above `count`, highest first."""
        return _above(count, self._counters)

    def snapshot(self) -> list[bytes]:
        """Return the state that future estimates depend on: the entries as bytes."""
        return [column.tobytes() for column in self.entries()]

    def restore(self, snapshot: object) -> None:
        """Restore the state of `snapshot`. Raises TypeError if it is not a sketch of at most this capacity."""
        capacity = len(self._counters.keys)
        keys, counts, errors = _columns(snapshot, capacity)
        self._counters = _counters(capacity, keys, counts, errors)
        self.total = int(counts.sum())


def _columns(snapshot: object, capacity: int) -> list[NDArray[np.int64]]:
    """Return the entries of a snapshot, whose counts must be ascending and at least 1."""
    if isinstance(snapshot, list) and all(isinstance(part, bytes) and len(part) % 8 == 0 for part in snapshot):
        columns = [np.frombuffer(part, dtype=np.int64) for part in snapshot]
        lengths = [len(column) for column in columns]
        fits = len(lengths) == 3 and min(lengths) == max(lengths) <= capacity
        if fits and (np.diff(columns[1], prepend=1) >= 0).all():
            return columns
    raise TypeError(f"a sketch's snapshot is {str(snapshot)[:40]}, not the bytes of at most {capacity} counters")


def _counters(capacity: int, keys: NDArray[np.int64], counts: NDArray[np.int64], errors: NDArray[np.int64]) -> Counters:
    """Build the arrays from entries in ascending order of count. The remaining counters have count 0."""
    unassigned = capacity - len(keys)
    padded = [np.pad(column, (unassigned, 0)) for column in (keys, counts, errors)]
    values, starts, blocks = np.unique(padded[1], return_index=True, return_inverse=True)
    places = np.arange(capacity, dtype=np.int32)
    counters = Counters(
        keys=padded[0],
        errors=padded[2],
        blocks=blocks.astype(np.int32),
        places=places,
        order=places.copy(),
        counts=np.pad(values, (0, capacity - len(values))),
        ends=np.pad(np.append(starts[1:], capacity) - 1, (0, capacity - len(values))).astype(np.int32),
        unused=np.append(np.int32(capacity - len(values)), np.roll(places, -len(values))),
        table=np.full(1 << (2 * capacity - 1).bit_length(), EMPTY, dtype=np.int32),
    )
    for counter, key in enumerate(keys.tolist(), start=unassigned):
        counters.table[_slot(key, counters.keys, counters.table)] = counter
    return counters


@jit
def _slot(key: int, keys: NDArray[np.int64], table: NDArray[np.int32]) -> int:
    """Return the table slot with the counter of `key`, or the empty slot to insert it."""
    mask = len(table) - 1
    slot = key & mask
    while table[slot] != EMPTY and keys[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot


@jit
def _remove(key: int, keys: NDArray[np.int64], table: NDArray[np.int32]) -> None:
    """Remove `key`. Backward-shift deletion: displaced entries move back, so no tombstones are needed."""
    mask = len(table) - 1
    hole = slot = _slot(key, keys, table)
    while table[slot] != EMPTY:
        slot = (slot + 1) & mask
        counter = table[slot]
        if counter != EMPTY and ((slot - keys[counter]) & mask) >= ((slot - hole) & mask):
            table[hole] = counter
            hole = slot
    table[hole] = EMPTY


@jit
def _above(count: float, counters: Counters) -> NDArray[np.int64]:
    """Read the order from its end, because few of the counters are above the count."""
    order, blocks, counts = counters.order, counters.blocks, counters.counts
    start = len(order)
    while start > 0 and counts[blocks[order[start - 1]]] > count:
        start -= 1
    estimates = np.empty(len(order) - start, dtype=np.int64)
    for place in range(start, len(order)):
        estimates[len(order) - 1 - place] = counts[blocks[order[place]]]
    return estimates


@jit
def _assign_counter(key: int, counters: Counters) -> int:
    """Assign a counter with the lowest count to `key` and remove its previous key. The count becomes the error."""
    lowest = counters.blocks[counters.order[0]]
    counter: int = counters.order[counters.ends[lowest]]
    if counters.counts[lowest] > 0:
        _remove(counters.keys[counter], counters.keys, counters.table)
    counters.keys[counter] = key
    counters.errors[counter] = counters.counts[lowest]
    counters.table[_slot(key, counters.keys, counters.table)] = counter
    return counter


@jit
def _count(codes: NDArray[np.int32], hashes: NDArray[np.int64], counters: Counters) -> NDArray[np.int64]:
    """Count every tuple and return the estimate of its key."""
    # One loop, because a function call per tuple would double the cost.
    keys, _, blocks, places, order, counts, ends, unused, table = counters
    estimates = np.empty(len(codes), dtype=np.int64)
    for row, code in enumerate(codes):
        key = hashes[code]
        counter = table[_slot(key, keys, table)]
        if counter == EMPTY:
            counter = _assign_counter(key, counters)
        block = blocks[counter]
        last = ends[block]
        count = counts[block] + 1
        if order[last] != counter:
            place, swapped = places[counter], order[last]
            order[place], places[swapped] = swapped, place
            order[last], places[counter] = counter, last
        alone = last == 0 or blocks[order[last - 1]] != block
        if last + 1 < len(order) and counts[blocks[order[last + 1]]] == count:
            blocks[counter] = blocks[order[last + 1]]
            ends[block] = last - 1
            if alone:
                unused[0] += 1
                unused[unused[0]] = block
        else:
            if not alone:
                ends[block] = last - 1
                block = unused[unused[0]]
                unused[0] -= 1
                blocks[counter] = block
                ends[block] = last
            counts[block] = count
        estimates[row] = count
    return estimates
