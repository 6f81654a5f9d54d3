"""SpaceSaving: the hottest keys of a stream with a fixed number of counters (Metwally et al., ICDT 2005).

Counters stand in the order of their counts, in blocks of equal count; a count that grows by one moves its counter to
the end of its block, and from there into the next: a tuple costs the same however many counters there are. This is the
paper's stream summary, with arrays in the place of linked lists.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled

EMPTY = -1
"""What the table holds where no counter is."""


class Counters(NamedTuple):
    """The arrays of a sketch. A counter of count 0 belongs to no key."""

    keys: NDArray[np.int64]
    """Per counter: the 64-bit hash of its key."""
    errors: NDArray[np.int64]
    """Per counter: how much of its count may belong to the keys that had it before."""
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
    """How many blocks are unused, and then these."""
    table: NDArray[np.int32]
    """The counter of each key, by open addressing; a power of two, at least half empty."""


class SpaceSaving:
    """Counts keys, given as 64-bit hashes, with `capacity` counters; keys of equal hash are one key.

    An estimate is never below the true count and never further above it than its error, which is at most
    total / capacity; a key of more than total / capacity tuples has a counter for certain.
    """

    def __init__(self, capacity: int) -> None:
        nothing = np.empty(0, dtype=np.int64)
        self._counters = _counters(capacity, nothing, nothing, nothing)
        self.total = 0
        """Tuples counted."""

    @property
    def nbytes(self) -> int:
        """Bytes of all counters."""
        return sum(array.nbytes for array in self._counters)

    def update(self, codes: NDArray[np.int32], hashes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count tuples, whose keys have `hashes[codes]`; tell the estimate of each one's key right after it."""
        self.total += len(codes)
        return _count(codes, hashes, self._counters)

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Hash, estimate and error of every key that has a counter, lowest estimate first."""
        counters = self._counters
        counts = counters.counts[counters.blocks[counters.order]]
        order = counters.order[np.searchsorted(counts, 1) :]
        return counters.keys[order], counters.counts[counters.blocks[order]], counters.errors[order]

    def above(self, count: float) -> NDArray[np.int64]:
        """Estimates of all keys above `count`, highest first."""
        return _above(count, self._counters)

    def snapshot(self) -> list[bytes]:
        """Tell all that estimates to come depend on: the entries as bytes."""
        return [column.tobytes() for column in self.entries()]

    def restore(self, snapshot: object) -> None:
        """Continue where the sketch that made `snapshot` was; TypeError when it is none of at most this capacity."""
        capacity = len(self._counters.keys)
        keys, counts, errors = _columns(snapshot, capacity)
        self._counters = _counters(capacity, keys, counts, errors)
        self.total = int(counts.sum())


def _columns(snapshot: object, capacity: int) -> list[NDArray[np.int64]]:
    """Read the entries of a snapshot, counts ascending from 1."""
    if isinstance(snapshot, list) and all(isinstance(one, bytes) and len(one) % 8 == 0 for one in snapshot):
        columns = [np.frombuffer(one, dtype=np.int64) for one in snapshot]
        lengths = [len(column) for column in columns]
        fits = len(lengths) == 3 and min(lengths) == max(lengths) <= capacity
        if fits and (np.diff(columns[1], prepend=1) >= 0).all():
            return columns
    raise TypeError(f"a sketch's snapshot is {str(snapshot)[:40]}, not the bytes of at most {capacity} counters")


def _counters(capacity: int, keys: NDArray[np.int64], counts: NDArray[np.int64], errors: NDArray[np.int64]) -> Counters:
    """Lay out entries, lowest count first, above counters of count 0."""
    missing = capacity - len(keys)
    filled = [np.pad(column, (missing, 0)) for column in (keys, counts, errors)]
    values, starts, blocks = np.unique(filled[1], return_index=True, return_inverse=True)
    places = np.arange(capacity, dtype=np.int32)
    counters = Counters(
        keys=filled[0],
        errors=filled[2],
        blocks=blocks.astype(np.int32),
        places=places,
        order=places.copy(),
        counts=np.pad(values, (0, capacity - len(values))),
        ends=np.pad(np.append(starts[1:], capacity) - 1, (0, capacity - len(values))).astype(np.int32),
        unused=np.append(np.int32(capacity - len(values)), np.roll(places, -len(values))),
        table=np.full(1 << (2 * capacity - 1).bit_length(), EMPTY, dtype=np.int32),
    )
    for counter, key in enumerate(keys.tolist(), start=missing):
        counters.table[_slot(key, counters.keys, counters.table)] = counter
    return counters


@compiled
def _slot(key: int, keys: NDArray[np.int64], table: NDArray[np.int32]) -> int:
    """Where the table has the counter of `key`, or room for it."""
    mask = len(table) - 1
    slot = key & mask
    while table[slot] != EMPTY and keys[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot


@compiled
def _forget(key: int, keys: NDArray[np.int64], table: NDArray[np.int32]) -> None:
    """Take `key` out of the table; what had to step aside for it moves back, so that no marks of the dead are left."""
    mask = len(table) - 1
    hole = slot = _slot(key, keys, table)
    while table[slot] != EMPTY:
        slot = (slot + 1) & mask
        counter = table[slot]
        if counter != EMPTY and ((slot - keys[counter]) & mask) >= ((slot - hole) & mask):
            table[hole] = counter
            hole = slot
    table[hole] = EMPTY


@compiled
def _above(count: float, counters: Counters) -> NDArray[np.int64]:
    """Read the order from its end, which is short where the whole is long."""
    order, blocks, counts = counters.order, counters.blocks, counters.counts
    start = len(order)
    while start > 0 and counts[blocks[order[start - 1]]] > count:
        start -= 1
    estimates = np.empty(len(order) - start, dtype=np.int64)
    for place in range(start, len(order)):
        estimates[len(order) - 1 - place] = counts[blocks[order[place]]]
    return estimates


@compiled
def _take_over(key: int, counters: Counters) -> int:
    """Give `key` a counter of the lowest count, which becomes its error; the one that had it is forgotten."""
    lowest = counters.blocks[counters.order[0]]
    counter: int = counters.order[counters.ends[lowest]]
    if counters.counts[lowest] > 0:
        _forget(counters.keys[counter], counters.keys, counters.table)
    counters.keys[counter] = key
    counters.errors[counter] = counters.counts[lowest]
    counters.table[_slot(key, counters.keys, counters.table)] = counter
    return counter


@compiled
def _count(codes: NDArray[np.int32], hashes: NDArray[np.int64], counters: Counters) -> NDArray[np.int64]:
    """Count every tuple and tell its key's estimate; one loop, since a call per tuple would double its cost."""
    keys, _, blocks, places, order, counts, ends, unused, table = counters
    estimates = np.empty(len(codes), dtype=np.int64)
    for row, code in enumerate(codes):
        key = hashes[code]
        counter = table[_slot(key, keys, table)]
        if counter == EMPTY:
            counter = _take_over(key, counters)
        block = blocks[counter]
        last = ends[block]
        count = counts[block] + 1
        if order[last] != counter:
            place, other = places[counter], order[last]
            order[place], places[other] = other, place
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
