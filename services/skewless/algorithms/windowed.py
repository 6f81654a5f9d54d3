"""Windows merged from panes, for one partition: what is open, what changed, what closes, and what must be remembered.

State is remembered as chunks in a compacted changelog. A chunk is what one flush merged into one window; its key is
(window, number), and a window is the merge of its chunks. When a window has many chunks it is written anew and they are
taken back, so that restoring costs what the state is worth. What is too large for a record becomes several chunks.

Numbers tell both kinds apart: below 0 are those that were written anew. Their sizes grow, so that none is used twice in
a window and nothing is overwritten: what is taken back stays until all that replaces it has been written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.base import PartialColumn
from skewless.algorithms.keyed import Changes, KeyedTable
from skewless.algorithms.partials import merge_partials
from skewless.algorithms.sized import cut
from skewless.algorithms.windows import starts

MOST_CHUNKS = 32
"""A window is written anew when so many flushes' chunks are there; and no fewer than it was written anew as."""

KEPT_FLUSHES = 20
"""A window that was opened again is held for so many flushes without rows: fetching it reads its whole changelog."""
PENDING_ROWS = 131_072
"""So many rows of a partition wait before they are merged into their windows."""
PORTION_ROWS = 65_536
"""Rows that are copied at the same time to be written or emitted, at most."""

TOLD = PartialColumn("told", source="one", merge="sum")
"""How often a key of a window was told beyond its closing; kept like an aggregate, so that it survives a restart."""


@dataclass(slots=True)
class Window:
    """One window that is held in memory: its rows, and what came for it since the last flush."""

    rows: KeyedTable
    changes: Changes
    """What was merged into the rows since the last flush: the next chunks."""
    chunks: list[int] = field(default_factory=list)
    """Numbers of its chunks, in the order in which they were written."""
    pending: list[pa.Table] = field(default_factory=list)
    """What waits to be merged into the rows."""
    known: int = 0
    """Rows that there were at the last flush."""
    unused: int = 0
    """Flushes without a change."""

    @property
    def nbytes(self) -> int:
        """Bytes of all that is held."""
        return self.rows.nbytes + self.changes.nbytes + sum(int(table.nbytes) for table in self.pending)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One record of the changelog; a `table` of None takes the chunk back."""

    window: int
    number: int
    table: pa.Table | None


@dataclass(frozen=True, slots=True)
class Emission:
    """Rows of a window to be told: their keys and columns, and `revision`, how often each was told before."""

    window: int
    keys: pa.Array
    data: Mapping[str, NDArray[np.int64]]


class Windows:
    """All windows of one partition. A window is closed when the watermark has passed its end.

    With `updates` each flush tells what changed; without, a window is told once when it closes, and what changes later
    (an idle origin woke up) is told as a correction. A closed window is forgotten when the watermark is `keep_ms`
    beyond its end.
    """

    def __init__(self, columns: Sequence[PartialColumn], size_ms: int, keep_ms: int, *, updates: bool) -> None:
        self._columns = (*columns, TOLD)
        self._size_ms = size_ms
        self._keep_ms = keep_ms
        self._updates = updates
        self._held: dict[int, Window] = {}
        self._closed: dict[int, list[int]] = {}
        """Numbers of their chunks."""
        self._newest: int | None = None
        self._pending_rows = 0
        self.closed_to: int | None = None
        """Windows that end at or before this are closed; it never goes back."""

    def __len__(self) -> int:
        return sum(len(window.rows) for window in self._held.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of what waits for the next flush."""
        return sum(window.nbytes for window in self._held.values())

    @property
    def open(self) -> int:
        """How many windows are held that were never closed."""
        return len(self._held.keys() - self._closed.keys())

    @property
    def end(self) -> int | None:
        """Where the newest window ends, None before the first: when all time is over, this is what has passed.

        Not the end of time itself: more records may come after a bounded run, and theirs are open windows.
        """
        return None if self._newest is None else self._newest + self._size_ms

    # Restoring

    def restore(self, window: int, chunks: Mapping[int, pa.Table | None]) -> None:
        """Take a window back from its chunks by number; those of a closed window are only noted, they may be None."""
        self._see(window)
        if self._is_closed(window):
            self._closed[window] = sorted(chunks, key=abs)
        else:
            self._held[window] = self._from_chunks(chunks)

    def reopen(self, window: int, chunks: Mapping[int, pa.Table]) -> bool:
        """Hold a closed window again, so that what came for it can be merged into it; return whether it is held now.

        It is left alone when it has been forgotten, or was opened by another batch, while its chunks were fetched.
        """
        # Of a forgotten window nothing is known any more: the next flush would emit all of it a second time.
        wanted = window in self._closed and window not in self._held
        if wanted:
            self._held[window] = self._from_chunks(chunks)
        return wanted

    def release(self) -> None:
        """Let go of windows that were opened again and have nothing to write."""
        for start in self._held.keys() & self._closed.keys():
            window = self._held[start]
            if not window.pending and not window.changes:
                del self._held[start]

    def _from_chunks(self, chunks: Mapping[int, pa.Table | None]) -> Window:
        window = self._new_window()
        window.chunks = sorted(chunks, key=abs)
        for number in window.chunks:
            table = chunks[number]
            if table is not None:
                window.rows.merge(window.rows.rows_of(table["key"]), self._numbers(table))
        window.known = len(window.rows)
        return window

    def _new_window(self) -> Window:
        return Window(KeyedTable(self._columns), Changes(self._columns))

    def _numbers(self, table: pa.Table) -> dict[str, NDArray[np.int64]]:
        return {column.name: table[column.name].to_numpy() for column in self._columns}

    # Taking in

    def missing(self, panes: NDArray[np.int64]) -> set[int]:
        """Name closed windows that these panes belong to and that must be re-opened before the panes are merged."""
        found = np.unique(starts(panes, self._size_ms)).tolist()
        return {start for start in found if start in self._closed and start not in self._held}

    def merge(self, partials: pa.Table) -> pa.Table | None:
        """Merge partials (`pane`, `key` and the columns) into their windows; return those whose window is forgotten."""
        start_of = starts(partials["pane"].to_numpy(), self._size_ms)
        names = ["key", *(column.name for column in self._columns[:-1])]
        refused = []
        for start in np.unique(start_of).tolist():
            rows = np.flatnonzero(start_of == start)
            mine = partials if len(rows) == len(start_of) else partials.take(pa.array(rows))
            if self._is_forgotten(start):
                refused.append(mine)
            else:
                self._hold(start).pending.append(mine.select(names))
                self._pending_rows += len(rows)
        if self._pending_rows > PENDING_ROWS:
            self.absorb()
        return pa.concat_tables(refused) if refused else None

    def _hold(self, start: int) -> Window:
        if start not in self._held:
            self._held[start] = self._new_window()
            self._see(start)
        return self._held[start]

    def _see(self, start: int) -> None:
        self._newest = start if self._newest is None else max(self._newest, start)

    # Giving out

    def absorb(self) -> None:
        """Merge what waits into the rows."""
        self._pending_rows = 0
        for start, window in self._held.items():
            if window.pending:
                self._absorb(window, again=start in self._closed)

    def _absorb(self, window: Window, *, again: bool) -> None:
        merged = merge_partials(window.pending, ("key",), self._columns[:-1])
        window.pending = []
        rows = window.rows.rows_of(merged["key"])
        first = window.changes.unchanged(rows, len(window.rows))
        # A key that a closed window did not have is told for the first time, and others are told once in a flush.
        told = first & (self._updates or (again & (rows < window.known)))
        data = self._numbers(merged.append_column(TOLD.name, pa.array(told.astype(np.int64))))
        window.rows.merge(rows, data)
        window.changes.merge(rows, data, len(window.rows))

    def flush(self, watermark: int | None) -> Iterator[Chunk | Emission]:
        """Yield what the changelog must remember and what is to be emitted; close what the watermark has passed."""
        self.absorb()
        if watermark is not None:
            self.closed_to = watermark if self.closed_to is None else max(self.closed_to, watermark)
        for start in sorted(self._held):
            window = self._held[start]
            closing, again = self._is_closed(start), start in self._closed
            window.unused += 1
            if window.changes:
                yield from self._changed(start, window, emitted=self._updates or again)
            if closing:
                if not self._updates and not again:
                    yield from self._emissions(start, window, np.arange(len(window.rows)))
                self._closed[start] = window.chunks
                if not again or window.unused > KEPT_FLUSHES:
                    del self._held[start]
        yield from self._forget()

    def _changed(self, start: int, window: Window, *, emitted: bool) -> Iterator[Chunk | Emission]:
        """Yield the changes of a window as chunks, and the rows that have changed."""
        rows, data = window.changes.take()
        window.known, window.unused = len(window.rows), 0
        yield from self._remember(start, window, rows, data)
        if emitted:
            yield from self._emissions(start, window, rows)

    def _remember(
        self, start: int, window: Window, rows: NDArray[np.int64], data: Mapping[str, NDArray[np.int64]]
    ) -> Iterator[Chunk]:
        """Write what has changed; or the window anew, and take back what it was."""
        before = window.chunks
        merged = sum(number >= 0 for number in before)
        anew = merged >= max(MOST_CHUNKS, len(before) - merged)
        numbers = itertools.count(max(map(abs, before), default=-1) + 1)
        window.chunks = [] if anew else before.copy()
        tables = [window.rows.table()] if anew else _portions(window.rows, rows, data)
        for part in itertools.chain.from_iterable(map(cut, tables)):
            number = -next(numbers) if anew else next(numbers)
            window.chunks.append(number)
            yield Chunk(start, number, part)
        if anew:
            yield from (Chunk(start, number, None) for number in before)

    def _emissions(self, start: int, window: Window, rows: NDArray[np.int64]) -> Iterator[Emission]:
        for first in range(0, len(rows), PORTION_ROWS):
            some = rows[first : first + PORTION_ROWS]
            data = window.rows.data(some)
            told = data.pop(TOLD.name)
            data["revision"] = told - 1 if self._updates else told
            yield Emission(start, window.rows.keys(some), data)

    def _is_closed(self, start: int) -> bool:
        return self.closed_to is not None and start + self._size_ms <= self.closed_to

    def _is_forgotten(self, start: int) -> bool:
        return start not in self._closed and self._is_old(start)

    def _is_old(self, start: int) -> bool:
        # Not by the newest window: one record far ahead would make all closed windows old.
        return self.closed_to is not None and start + self._size_ms + self._keep_ms <= self.closed_to

    def _forget(self) -> Iterator[Chunk]:
        for start in [start for start in self._closed if self._is_old(start)]:
            self._held.pop(start, None)
            for number in self._closed.pop(start):
                yield Chunk(start, number, None)


def _portions(table: KeyedTable, rows: NDArray[np.int64], data: Mapping[str, NDArray[np.int64]]) -> Iterator[pa.Table]:
    """Yield tables of some rows of a table with other numbers."""
    for first in range(0, len(rows), PORTION_ROWS):
        some = slice(first, first + PORTION_ROWS)
        yield pa.table({"key": table.keys(rows[some]), **{name: values[some] for name, values in data.items()}})
