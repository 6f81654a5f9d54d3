"""Store of the windows of one partition: merges panes into windows, emits results and writes changelog records.

State is stored as chunks in a compacted changelog topic. A chunk has the rows that one flush merged into one window.
Its key is (window, ChunkId), and a window is the merge of its chunks. A window with many chunks is compacted: all its
rows are written as new chunks, and tombstones delete the previous ones. The cost of a restore is therefore proportional
to the size of the state. Rows that are too large for a record are split into several chunks.

Chunks are numbered in write order. No number is used twice in a window, so that no chunk overwrites another one.
Tombstones are written after all chunks that replace the deleted ones.

A flush may defer the emission of its rows, so that a window is emitted at most once per interval. Its chunks are marked
as deferred. The next chunk that is not deferred follows the emission of all these rows. It has no rows if the window
did not change again.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn, Partials, as_arrow, counting_column
from skewless.algorithms.keyed_table import Changes, KeyedTable
from skewless.algorithms.partials import merge_partials
from skewless.algorithms.record_size import split_by_size
from skewless.algorithms.windowing.assigner import WindowAssigner

COMPACTION_THRESHOLD = 32
"""A window is compacted when it has this many chunks of flushes, and at least as many as compacted chunks."""

KEPT_FLUSHES = 20
"""A reopened window is kept for this many flushes without new rows, because a reopen reads its whole changelog."""
PENDING_ROWS = 131_072
"""Maximum pending rows of a partition. With more, they are merged into their windows."""
PENDING_BYTES = 64 * 2**20
"""Maximum bytes of pending rows of a partition. This limit matters for long keys and large binary partials."""
PORTION_ROWS = 65_536
"""Maximum rows that are copied at once, to write or emit them."""
PORTION_BYTES = 32 * 2**20
"""Approximate maximum bytes of these rows. This limit matters for long keys and large binary partials."""

EMIT_COUNT = counting_column("emit_count")
"""Number of emissions of a key of a window, without the one at its close. A column of the state, so that it survives
restarts. A deferred emission is counted when the row changes."""
NO_ROWS = np.empty(0, dtype=np.int64)
NEVER = 2**63 - 1


class ChunkId(NamedTuple):
    """Identifies a chunk within its window."""

    number: int
    """Position in write order, from 0."""
    compacted: bool
    """Whether the chunk was written by a compaction: its rows contain all that was merged into them before."""
    deferred: bool = False
    """Whether the emission of its rows was deferred."""


@dataclass(slots=True)
class OpenWindow:
    """One window in memory: its rows, and the changes since the last flush."""

    rows: KeyedTable
    changes: Changes
    """Partials that were merged into the rows since the last flush: the next chunks."""
    chunks: list[ChunkId] = field(default_factory=list)
    """Its chunks in write order."""
    flushed_rows: int = 0
    """Number of rows at the last flush."""
    unchanged_flushes: int = 0
    """Number of flushes since the last change."""
    deferred: NDArray[np.int64] = field(default_factory=NO_ROWS.copy)
    """Rows whose emission was deferred, in ascending order."""
    emit_at: int = 0
    """Wall-clock time in ms from which on changed rows are emitted."""

    @property
    def nbytes(self) -> int:
        """Bytes of rows and changes."""
        return self.rows.nbytes + self.changes.nbytes + self.deferred.nbytes


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


class WindowStore:
    """All windows of one partition. A window is closed when the watermark has passed its end.

    With `updates` each flush emits the changed rows. `emit_interval_ms` is the minimum wall-clock time between two such
    emissions of an open window; when the window closes, all deferred rows are emitted. Without `updates`, a window is
    emitted once when it closes. In both cases, rows that change later (an idle upstream partition became active) are
    emitted as corrections. A closed window expires when the watermark is `retention_ms` after its end.
    """

    def __init__(
        self,
        columns: Sequence[PartialColumn],
        windows: WindowAssigner,
        retention_ms: int,
        *,
        updates: bool,
        emit_interval_ms: int = 0,
    ) -> None:
        self._columns = (*columns, EMIT_COUNT)
        self._windows = windows
        self._retention_ms = retention_ms
        self._updates = updates
        self._emit_interval_ms = emit_interval_ms
        self._loaded: dict[int, OpenWindow] = {}
        self._closed: dict[int, list[ChunkId]] = {}
        """Chunks of each closed window, in write order."""
        self._newest: int | None = None
        self._pending: dict[int, list[pa.Table]] = {}
        """Partials that are not yet merged into their windows, by the start of their slice."""
        self._pending_rows = self._pending_bytes = 0
        self.closed_until: int | None = None
        """Windows that end at or before this time are closed. It never decreases."""

    def __len__(self) -> int:
        return sum(len(window.rows) for window in self._loaded.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all windows in memory, and of pending partials."""
        return sum(window.nbytes for window in self._loaded.values()) + self._pending_bytes

    @property
    def open(self) -> int:
        """Number of windows in memory that were never closed."""
        return len(self._loaded.keys() - self._closed.keys())

    @property
    def starts(self) -> Collection[int]:
        """Starts of the windows in memory."""
        return self._loaded.keys()

    @property
    def end(self) -> int | None:
        """End of the newest window, None before the first. The last flush of a bounded run closes windows up to here.

        It does not close all of time: more records may arrive after the bounded run, and their windows are open.
        """
        return None if self._newest is None else self._windows.end(self._newest)

    # Restore and reopen

    def restore(self, window: int, chunks: Mapping[ChunkId, pa.Table | None]) -> None:
        """Restore a window from its chunks. A closed window needs only their identifiers: tables may be None."""
        self._update_newest(window)
        if self._is_closed(window):
            self._closed[window] = sorted(chunks)
        else:
            self._loaded[window] = self._from_chunks(chunks)
            self._loaded[window].emit_at = NEVER  # the time of the last emission is unknown

    def reopen(self, window: int, chunks: Mapping[ChunkId, pa.Table]) -> bool:
        """Load a closed window into memory, so that late partials can be merged. Returns whether it was loaded.

        It is not loaded if it expired, or another batch reopened it, while its chunks were fetched.
        """
        # An expired window is no longer recorded as closed, so the next flush would emit all its rows again.
        must_load = window in self._closed and window not in self._loaded
        if must_load:
            self._loaded[window] = self._from_chunks(chunks)
        return must_load

    def release(self) -> None:
        """Remove reopened windows without unwritten changes from memory."""
        pending = {start for slice_start in self._pending for start in self._windows.windows_of(slice_start)}
        for start in (self._loaded.keys() & self._closed.keys()) - pending:
            if not self._loaded[start].changes:
                del self._loaded[start]

    def _from_chunks(self, chunks: Mapping[ChunkId, pa.Table | None]) -> OpenWindow:
        window = self._new_window()
        window.chunks = sorted(chunks)
        for chunk in window.chunks:
            table = chunks[chunk]
            if table is None:
                continue
            rows = NO_ROWS
            if table.num_rows:
                rows = window.rows.rows_of(table["key"])
                window.rows.merge(rows, self._values(table))
            window.deferred = np.union1d(window.deferred, rows) if chunk.deferred else NO_ROWS
        window.flushed_rows = len(window.rows)
        return window

    def _new_window(self) -> OpenWindow:
        return OpenWindow(KeyedTable(self._columns), Changes(self._columns))

    def _values(self, table: pa.Table) -> dict[str, NDArray[Any]]:
        return {column.name: column.from_arrow(table[column.name]) for column in self._columns}

    # Merge

    def windows_to_reopen(self, panes: NDArray[np.int64]) -> set[int]:
        """Return the closed windows of these panes that must be reopened before the panes are merged."""
        slices = np.unique(self._windows.slices(panes)).tolist()
        windows = {start for slice_start in slices for start in self._windows.windows_of(slice_start)}
        return {start for start in windows if start in self._closed and start not in self._loaded}

    def merge(self, partials: pa.Table) -> pa.Table | None:
        """Merge partials (`pane`, `key` and the columns) into their windows. Returns those whose window has expired.

        If windows overlap, the returned partials have the additional column `window`: the start of the expired window.
        """
        slice_of = self._windows.slices(partials["pane"].to_numpy())
        expired = []
        for slice_start in np.unique(slice_of).tolist():
            rows = np.flatnonzero(slice_of == slice_start)
            slice_partials = partials if len(rows) == len(slice_of) else partials.take(pa.array(rows))
            windows = self._windows.windows_of(slice_start)
            expired += [self._rejected(slice_partials, start) for start in windows if self._is_expired(start)]
            if not self._is_expired(windows[-1]):
                self._add_pending(slice_start, slice_partials)
        if self._pending_rows > PENDING_ROWS or self._pending_bytes > PENDING_BYTES:
            self.absorb()
        return pa.concat_tables(expired) if expired else None

    def _rejected(self, partials: pa.Table, start: int) -> pa.Table:
        if self._windows.overlap == 1:
            return partials
        return partials.append_column("window", pa.array(np.full(partials.num_rows, start)))

    def _add_pending(self, slice_start: int, partials: pa.Table) -> None:
        """Add partials to the pending ones, and create their windows."""
        pending = partials.select(["key", *(column.name for column in self._columns[:-1])])
        self._pending.setdefault(slice_start, []).append(pending)
        self._pending_rows += pending.num_rows
        self._pending_bytes += pending.nbytes
        for start in self._windows.windows_of(slice_start):
            if start not in self._loaded and not self._is_expired(start):
                self._loaded[start] = self._new_window()
                self._update_newest(start)

    def _update_newest(self, start: int) -> None:
        self._newest = start if self._newest is None else max(self._newest, start)

    # Flush

    def absorb(self) -> None:
        """Merge the pending partials into the rows of their windows."""
        pending, self._pending = self._pending, {}
        self._pending_rows = self._pending_bytes = 0
        for slice_start, tables in pending.items():
            merged = merge_partials(tables, ("key",), self._columns[:-1])
            for start in self._windows.windows_of(slice_start):
                if start in self._loaded:  # otherwise it has expired
                    self._absorb(self._loaded[start], merged, reopened=start in self._closed)

    def _absorb(self, window: OpenWindow, merged: pa.Table, *, reopened: bool) -> None:
        """Merge partials with distinct keys into the rows of a window."""
        rows = window.rows.rows_of(merged["key"])
        first_change = window.changes.unchanged(rows, len(window.rows))
        # A row is emitted once per flush. Without `updates`, a new key of a reopened window was not emitted before.
        emitted = first_change & (self._updates or (reopened & (rows < window.flushed_rows)))
        if len(window.deferred):
            emitted &= ~np.isin(rows, window.deferred)
        data = self._values(merged.append_column(EMIT_COUNT.name, pa.array(emitted.astype(np.int64))))
        window.rows.merge(rows, data)
        window.changes.merge(rows, data, len(window.rows))

    def flush(self, watermark: int | None, now: int) -> Iterator[Chunk | Emission]:
        """Yield changelog records and emissions, and close the windows whose end the watermark has passed.

        `now` is the wall-clock time in ms.
        """
        self.absorb()
        if watermark is not None:
            self.closed_until = watermark if self.closed_until is None else max(self.closed_until, watermark)
        for start in sorted(self._loaded):
            window = self._loaded[start]
            closed, reopened = self._is_closed(start), start in self._closed
            window.unchanged_flushes += 1
            defer = self._must_defer(window, now) and not (closed or reopened)
            if window.changes or (len(window.deferred) and not defer):
                yield from self._flush_changes(start, window, emit=self._updates or reopened, defer=defer)
                if not defer:
                    window.emit_at = now + self._emit_interval_ms
            if closed:
                if not self._updates and not reopened:
                    yield from self._emissions(start, window, np.arange(len(window.rows)))
                self._closed[start] = window.chunks
                if not reopened or window.unchanged_flushes > KEPT_FLUSHES:
                    del self._loaded[start]
        yield from self._expire()

    def _must_defer(self, window: OpenWindow, now: int) -> bool:
        """Return whether a window was emitted less than an interval ago."""
        # The limit is for a restored window, and for a clock that was set back.
        window.emit_at = min(window.emit_at, now + self._emit_interval_ms)
        return now < window.emit_at

    def _flush_changes(self, start: int, window: OpenWindow, *, emit: bool, defer: bool) -> Iterator[Chunk | Emission]:
        """Yield the changes of a window as chunks, and emit the changed and the deferred rows, or defer them all."""
        rows, data = window.changes.take()
        window.flushed_rows, window.unchanged_flushes = len(window.rows), 0
        unemitted = np.union1d(window.deferred, rows) if defer or len(window.deferred) else rows
        window.deferred = unemitted if defer else NO_ROWS
        yield from self._write_changelog(start, window, rows, data)
        if emit and not defer:
            yield from self._emissions(start, window, unemitted)

    def _write_changelog(
        self, start: int, window: OpenWindow, rows: NDArray[np.int64], data: Partials
    ) -> Iterator[Chunk]:
        """Yield the changes as chunks. To compact, yield all rows as chunks, then tombstones of the previous ones."""
        previous = window.chunks
        uncompacted = sum(not chunk.compacted for chunk in previous)
        compact = uncompacted >= max(COMPACTION_THRESHOLD, len(previous) - uncompacted)
        numbers = itertools.count(previous[-1].number + 1 if previous else 0)
        window.chunks = [] if compact else previous.copy()
        for table, deferred in self._compacted(window) if compact else self._changed(window, rows, data):
            for part in split_by_size(table):
                chunk = ChunkId(next(numbers), compact, deferred)
                window.chunks.append(chunk)
                yield Chunk(start, chunk, part)
        if compact:
            yield from (Chunk(start, chunk, None) for chunk in previous)

    def _changed(self, window: OpenWindow, rows: NDArray[np.int64], data: Partials) -> Iterator[tuple[pa.Table, bool]]:
        """Yield tables of changed rows, and whether their emission is deferred. Without rows, yield an empty table."""
        for table in self._tables(window.rows, rows, data):
            yield table, len(window.deferred) > 0

    def _compacted(self, window: OpenWindow) -> Iterator[tuple[pa.Table, bool]]:
        """Yield tables of all rows, and whether their emission is deferred."""
        rows = np.arange(len(window.rows))
        if not len(window.deferred):
            yield from self._changed(window, rows, window.rows.data(slice(len(rows))))
            return
        # The deferred rows come last, because the emission of all earlier rows precedes a chunk that is not deferred.
        emitted = np.setdiff1d(rows, window.deferred, assume_unique=True)
        for part, deferred in ((emitted, False), (window.deferred, True)):
            for table in self._tables(window.rows, part, window.rows.data(part)):
                yield table, deferred

    def _tables(self, keys: KeyedTable, rows: NDArray[np.int64], data: Partials) -> Iterator[pa.Table]:
        """Yield tables with the keys of some rows, and their partials in `data`."""
        for portion in _portions(keys, max(1, len(rows))):
            columns = {column.name: as_arrow(column, data[column.name][portion]) for column in self._columns}
            yield pa.table({"key": keys.keys(rows[portion]), **columns})

    def _emissions(self, start: int, window: OpenWindow, rows: NDArray[np.int64]) -> Iterator[Emission]:
        for portion in _portions(window.rows, len(rows)):
            data = window.rows.data(rows[portion])
            emit_counts = data.pop(EMIT_COUNT.name)
            data["revision"] = emit_counts - 1 if self._updates else emit_counts
            yield Emission(start, window.rows.keys(rows[portion]), data)

    def _is_closed(self, start: int) -> bool:
        return self.closed_until is not None and self._windows.end(start) <= self.closed_until

    def _is_expired(self, start: int) -> bool:
        return start not in self._closed and self._is_past_retention(start)

    def _is_past_retention(self, start: int) -> bool:
        # Retention is not relative to the newest window: one record far ahead would expire all closed windows.
        return self.closed_until is not None and self._windows.end(start) + self._retention_ms <= self.closed_until

    def _expire(self) -> Iterator[Chunk]:
        for start in [start for start in self._closed if self._is_past_retention(start)]:
            self._loaded.pop(start, None)
            for chunk in self._closed.pop(start):
                yield Chunk(start, chunk, None)


def _portions(table: KeyedTable, rows: int) -> Iterator[slice]:
    """Cut a number of rows of a table into portions of bounded size."""
    bytes_per_row = max(1, table.nbytes // max(1, len(table)))
    size = max(1, min(PORTION_ROWS, PORTION_BYTES // bytes_per_row))
    return (slice(first, first + size) for first in range(0, rows, size))
