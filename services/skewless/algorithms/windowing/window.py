"""One window of a partition: its state, its rows in memory, and the chunks that store the rows in the changelog.

States
======

OPEN        The watermark has not passed the end of the window. Its rows are in memory.
DEFERRED    The same, with rows that are in the changelog and not emitted: the window is emitted at most once per
            interval.
CLOSED      The watermark has passed the end. Only the identifiers of the chunks are in memory.
REOPENED    A closed window whose rows were read from the changelog again, so that late partials can be merged.
EXPIRED     The watermark is far beyond the end. The chunks are deleted, and late partials are rejected.

Events
======

merge       Partials are merged into the window. It is in memory: a closed window must be reopened first.
defer       A flush writes the changed rows, and defers their emission.
emit        A flush writes the changed rows, and emits them with the deferred rows.
close       The watermark has passed the end. The flush writes the changed rows, and emits all that is not emitted.
reopen      The chunks of a closed window were read.
correct     A flush writes the changed rows of a reopened window, and emits them as corrections.
release     A reopened window without changes is removed from memory.
expire      A flush deletes the chunks.

`TRANSITIONS` is the machine. An event that the table does not list for a state raises IllegalEventError.

Chunks
======

State is stored as chunks in a compacted changelog topic. A chunk has the rows that one flush merged into one window.
Its key is (window, ChunkId), and a window is the merge of its current chunks. A window is compacted when it has many
chunks with together as many rows as itself: all its rows are written as new chunks, and tombstones delete the previous
ones. The cost of a restore is therefore proportional to the size of the state, and so is the cost of compaction to the
number of changes. Rows that are too large for a record are split into several chunks.

Chunks are numbered in write order. No number is used twice in a window, so that no chunk overwrites another one.
Tombstones are written after all chunks that replace the deleted ones, and the last chunk is deleted first. Each
compaction leaves out a number. So `current_chunks` finds the last compaction that was written completely, also if a
process without transactions was killed before the last tombstone.

Chunks of rows whose emission is deferred are marked as deferred. The next chunk that is not deferred follows the
emission of all these rows. It has no rows if the window did not change again.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn, Partials, as_arrow, counting_column
from skewless.algorithms.keyed_table import Changes, KeyedTable
from skewless.algorithms.record_size import split_by_size

COMPACTION_THRESHOLD = 32
"""A window is compacted when it has this many chunks of flushes, and at least as many as compacted chunks.

These chunks also have as many rows as the window. So a large window with few changes is not written again and again.
"""
CHUNK_ROWS = 64
"""A chunk counts as this many rows more: about what it costs to read it, to merge it and to delete it."""
PORTION_ROWS = 65_536
"""Maximum rows that are copied at once, to write or emit them."""
PORTION_BYTES = 32 * 2**20
"""Approximate maximum bytes of these rows. This limit matters for long keys and large binary partials."""

EMIT_COUNT = counting_column("emit_count")
"""Number of emissions of a key of a window, without the one at its close. A column of the state, so that it survives
restarts. A deferred emission is counted when the row changes."""
NO_ROWS = np.empty(0, dtype=np.int64)
NO_KEYS = pa.nulls(0, pa.string())

Value = TypeVar("Value")
"""What is stored of a chunk."""


class WindowState(Enum):
    """State of a window."""

    OPEN = "open"
    DEFERRED = "deferred"
    CLOSED = "closed"
    REOPENED = "reopened"
    EXPIRED = "expired"


class WindowEvent(Enum):
    """An event that changes the state of a window."""

    MERGE = "merge"
    DEFER = "defer"
    EMIT = "emit"
    CLOSE = "close"
    REOPEN = "reopen"
    CORRECT = "correct"
    RELEASE = "release"
    EXPIRE = "expire"


_S, _E = WindowState, WindowEvent
TRANSITIONS: Mapping[WindowState, Mapping[WindowEvent, WindowState]] = {
    _S.OPEN: {_E.MERGE: _S.OPEN, _E.DEFER: _S.DEFERRED, _E.EMIT: _S.OPEN, _E.CLOSE: _S.CLOSED},
    _S.DEFERRED: {_E.MERGE: _S.DEFERRED, _E.DEFER: _S.DEFERRED, _E.EMIT: _S.OPEN, _E.CLOSE: _S.CLOSED},
    _S.CLOSED: {_E.REOPEN: _S.REOPENED, _E.EXPIRE: _S.EXPIRED},
    _S.REOPENED: {
        _E.MERGE: _S.REOPENED,
        _E.CORRECT: _S.REOPENED,
        _E.RELEASE: _S.CLOSED,
        _E.EXPIRE: _S.EXPIRED,
    },
    _S.EXPIRED: {},
}
"""The state after each event. An event that is missing for a state is illegal in it."""


class IllegalEventError(RuntimeError):
    """An event is illegal in the state of a window: a bug."""


class ChunkId(NamedTuple):
    """Identifies a chunk within its window."""

    number: int
    """Position in write order, from 0."""
    compacted: bool
    """Whether the chunk was written by a compaction: its rows contain all that was merged into them before."""
    deferred: bool = False
    """Whether the emission of its rows was deferred."""


def current_chunks(chunks: Mapping[ChunkId, Value]) -> dict[ChunkId, Value]:
    """Return those of the stored chunks of a window whose merge is the window."""
    numbers = {chunk.number for chunk in chunks}
    compacted = {chunk.number for chunk in chunks if chunk.compacted}
    # Skewless 0.3 left out no number, and deleted the first chunk first. While the chunk before such a compaction is
    # stored, it is unknown whether all of it was written. All chunks are merged then, so that no tuple is missing.
    starts = {number for number in compacted if number - 1 not in numbers}
    # All chunks of a compaction are stored if the last chunk before it is deleted.
    incomplete = {number for number in starts if number - 2 in numbers}
    first = max(starts - incomplete, default=0)
    unused = {
        number for start in incomplete for number in itertools.takewhile(compacted.__contains__, itertools.count(start))
    }
    return {chunk: value for chunk, value in chunks.items() if chunk.number >= first and chunk.number not in unused}


@dataclass(frozen=True, slots=True)
class Chunk:
    """One changelog record. A `table` of None is a tombstone, which deletes the chunk."""

    window: int
    id: ChunkId
    table: pa.Table | None


@dataclass(frozen=True, slots=True)
class Emission:
    """Rows of a window to emit: keys, columns, and `revision`, the number of previous emissions of the row."""

    window: int
    keys: pa.Array
    data: Partials
    deletes: bool = False
    """Whether earlier emissions of the rows are deleted. `data` then has their bounds only."""


Tables = Iterable[tuple[pa.Table, bool]]
"""Tables of rows, each with whether any emission of these rows is deferred."""


class Rows(ABC):
    """Rows of a window in memory, and their changes since the last flush."""

    def __init__(self) -> None:
        self.deferred: NDArray[np.int64] = NO_ROWS
        """Rows whose emission was deferred, in ascending order."""
        self.unchanged_flushes = 0
        """Number of flushes since the last change."""
        self.emit_at = 0
        """Wall-clock time in ms from which on changed rows are emitted."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of rows and changes."""

    @property
    @abstractmethod
    def has_changes(self) -> bool:
        """Whether partials were merged since the last flush."""

    @abstractmethod
    def merge(self, partials: pa.Table, *, updates: bool, reopened: bool) -> None:
        """Merge partials that `WindowStore` has reduced."""

    @abstractmethod
    def flush(
        self, window: Window, event: WindowEvent, *, updates: bool, closed_until: int | None
    ) -> Iterator[Chunk | Emission]:
        """Write the changes of the window of the rows, and emit what the event emits."""


class WindowRows(Rows):
    """Rows of a window with one row per key. `columns` ends with EMIT_COUNT."""

    def __init__(
        self, columns: Sequence[PartialColumn], chunks: Mapping[ChunkId, pa.Table | None] = MappingProxyType({})
    ) -> None:
        super().__init__()
        self._columns = columns
        self._table = KeyedTable(columns)
        self._changes = Changes(columns)
        """Partials that were merged into the rows since the last flush: the next chunks."""
        self._is_reduced = False
        """Whether the next flush writes all rows, in place of all that was written before."""
        self._reduction: tuple[int, int] | None = None
        """The `kept` of the last reduction, and the number of rows after it."""
        for chunk in sorted(chunks):
            self._load(chunks[chunk], deferred=chunk.deferred)
        self._flushed = len(self)
        """Number of rows at the last flush."""

    def _load(self, table: pa.Table | None, *, deferred: bool) -> None:
        if table is None:
            return
        rows = NO_ROWS
        if table.num_rows:
            rows = self._table.rows_of(table["key"])
            self._table.merge(rows, self._values(table))
        self.deferred = np.union1d(self.deferred, rows) if deferred else NO_ROWS

    def _values(self, table: pa.Table) -> dict[str, NDArray[Any]]:
        return {column.name: column.from_arrow(table[column.name]) for column in self._columns}

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Bytes of rows and changes."""
        return self._table.nbytes + self._changes.nbytes + self.deferred.nbytes

    @property
    def has_changes(self) -> bool:
        """Whether partials were merged since the last flush."""
        return self._is_reduced or len(self._changes) > 0

    def merge(self, partials: pa.Table, *, updates: bool, reopened: bool) -> None:
        """Merge partials with distinct keys."""
        rows = self._table.rows_of(partials["key"])
        first_change = self._changes.unchanged(rows, len(self))
        # A row is emitted once per flush. Without `updates`, a new key of a reopened window was not emitted before.
        emitted = first_change & (updates or (reopened & (rows < self._flushed)))
        if len(self.deferred):
            emitted &= ~np.isin(rows, self.deferred)
        data = self._values(partials.append_column(EMIT_COUNT.name, pa.array(emitted.astype(np.int64))))
        self._table.merge(rows, data)
        self._changes.merge(rows, data, len(self))

    def is_reducible(self, kept: int) -> bool:
        """Return whether `reduced` may return fewer rows: not if it has already, and no row was added since then."""
        last_kept, last_rows = self._reduction or (kept + 1, 0)
        return len(self) > kept and (kept < last_kept or len(self) > last_rows)

    def reduced(self, kept: int, reduced: Callable[[pa.Table, int], pa.Table]) -> WindowRows:
        """Return fewer rows in place of these, or these if they do not become fewer."""
        tables = [table.drop_columns(EMIT_COUNT.name) for table, _ in self._all_tables()]
        table = reduced(pa.concat_tables(tables), kept)
        rows = self
        if table.num_rows < len(self):
            rows = WindowRows(self._columns)
            emit_counts = pa.array(np.zeros(table.num_rows, np.int64))
            # These are no changes, which would take memory: the flush writes all rows anyway.
            rows._load(table.append_column(EMIT_COUNT.name, emit_counts), deferred=False)
            rows._is_reduced = True
        rows._reduction = kept, len(rows)
        return rows

    def flush(
        self,
        window: Window,
        event: WindowEvent,
        *,
        updates: bool,
        closed_until: int | None,  # noqa: ARG002 - for sessions
    ) -> Iterator[Chunk | Emission]:
        """Write the changes of the window of the rows, and emit what the event emits."""
        if self.has_changes or len(self.deferred):
            compact = self._is_reduced
            changed, data, emitted = self._take_changes(defer=event is WindowEvent.DEFER)
            yield from window.write(self._tables(changed, data), self._all_tables, compact=compact)
            if updates or event is WindowEvent.CORRECT:
                yield from self.emissions(window.start, emitted, updates=updates)
        if event is WindowEvent.CLOSE and not updates:
            yield from self.emissions(window.start, np.arange(len(self)), updates=False)

    def _take_changes(self, *, defer: bool) -> tuple[NDArray[np.int64], Partials, NDArray[np.int64]]:
        """Return the changed rows, their partials, and the rows to emit: none if all emissions are deferred."""
        rows, data = self._changes.take()
        if self._is_reduced:
            rows, data = np.arange(len(self)), self._table.data(slice(len(self)))
            self._is_reduced = False
        self._flushed, self.unchanged_flushes = len(self), 0
        unemitted = np.union1d(self.deferred, rows) if defer or len(self.deferred) else rows
        self.deferred, emitted = (unemitted, NO_ROWS) if defer else (NO_ROWS, unemitted)
        return rows, data, emitted

    def emissions(self, window: int, rows: NDArray[np.int64], *, updates: bool) -> Iterator[Emission]:
        """Yield the emissions of some rows."""
        for portion in self._portions(len(rows)):
            data = self._table.data(rows[portion])
            emit_counts = data.pop(EMIT_COUNT.name)
            data["revision"] = emit_counts - 1 if updates else emit_counts
            yield Emission(window, self._table.keys(rows[portion]), data)

    def _all_tables(self) -> Tables:
        """Yield tables of all rows, and whether their emission is deferred."""
        rows = np.arange(len(self))
        if not len(self.deferred):
            yield from self._tables(rows, self._table.data(slice(len(rows))))
            return
        # The deferred rows come last, because the emission of all earlier rows precedes a chunk that is not deferred.
        emitted = np.setdiff1d(rows, self.deferred, assume_unique=True)
        for part, deferred in ((emitted, False), (self.deferred, True)):
            for table, _ in self._tables(part, self._table.data(part)):
                yield table, deferred

    def _tables(self, rows: NDArray[np.int64], data: Partials) -> Tables:
        """Yield tables with some rows, and whether any emission is deferred. Without rows, yield an empty table."""
        for portion in self._portions(max(1, len(rows))):
            columns = {column.name: as_arrow(column, data[column.name][portion]) for column in self._columns}
            yield pa.table({"key": self._table.keys(rows[portion]), **columns}), len(self.deferred) > 0

    def _portions(self, rows: int) -> Iterator[slice]:
        """Cut a number of rows into portions of bounded size."""
        bytes_per_row = max(1, self._table.nbytes // max(1, len(self)))
        size = max(1, min(PORTION_ROWS, PORTION_BYTES // bytes_per_row))
        return (slice(first, first + size) for first in range(0, rows, size))


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeWindow(Emission):
    """Precedes the emissions or the close of a window. Its rows may be changed, because they are written later."""

    rows: WindowRows
    version: int
    """It increases whenever the window has changed."""


class WholeWindowRows(WindowRows):
    """Rows that are also yielded as a whole before some of them are emitted, and when the window closes."""

    def flush(
        self, window: Window, event: WindowEvent, *, updates: bool, closed_until: int | None
    ) -> Iterator[Chunk | Emission]:
        """Yield the whole window, if it has emissions or closes, then what `WindowRows` yields."""
        # Also at a close without changes: the window may be older than the setting that asks for whole windows.
        if event in {WindowEvent.CLOSE, WindowEvent.CORRECT} or (updates and event is WindowEvent.EMIT):
            version = window.next_chunk + (self.has_changes or len(self.deferred) > 0)
            yield WholeWindow(window.start, NO_KEYS, {}, rows=self, version=version)
        yield from super().flush(window, event, updates=updates, closed_until=closed_until)


@dataclass(slots=True)
class Window:
    """Everything that the store knows about one window."""

    start: int
    state: WindowState
    chunks: list[ChunkId] = field(default_factory=list)
    """Its chunks in write order."""
    uncompacted_rows: int = 0
    """Rows of those that no compaction wrote, and CHUNK_ROWS for each."""
    rows: Rows | None = None
    """Its rows; None if they are not in memory."""

    def apply(self, event: WindowEvent) -> None:
        """Change the state. Raises IllegalEventError if the table does not allow the event."""
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise IllegalEventError(f"window {self.start}: event {event.value} is illegal in state {self.state.value}")
        self.state = following
        if following in (WindowState.CLOSED, WindowState.EXPIRED):
            self.rows = None

    @property
    def next_chunk(self) -> int:
        """Number of the next chunk."""
        return self.chunks[-1].number + 1 if self.chunks else 0

    def write(self, changed: Tables, everything: Callable[[], Tables], *, compact: bool = False) -> Iterator[Chunk]:
        """Yield the changed rows as chunks, or all rows to compact, followed by tombstones of the previous chunks."""
        previous = self.chunks
        compact = self._is_long() or (compact and bool(previous))
        numbers = itertools.count(self.next_chunk + compact)
        self.chunks = [] if compact else previous.copy()
        self.uncompacted_rows = 0 if compact else self.uncompacted_rows
        for table, deferred in everything() if compact else changed:
            for part in split_by_size(table):
                chunk = ChunkId(next(numbers), compact, deferred)
                self.chunks.append(chunk)
                self.uncompacted_rows += 0 if compact else CHUNK_ROWS + part.num_rows
                yield Chunk(self.start, chunk, part)
        if compact:
            yield from self.tombstones(previous)

    def _is_long(self) -> bool:
        """Return whether a restore of all chunks costs much more than one of a compacted window."""
        if self.uncompacted_rows < len(self.rows or ()):
            return False
        uncompacted = sum(not chunk.compacted for chunk in self.chunks)
        return uncompacted >= max(COMPACTION_THRESHOLD, len(self.chunks) - uncompacted)

    def tombstones(self, chunks: Sequence[ChunkId]) -> Iterator[Chunk]:
        """Yield the records that delete chunks."""
        return (Chunk(self.start, chunk, None) for chunk in reversed(chunks))
