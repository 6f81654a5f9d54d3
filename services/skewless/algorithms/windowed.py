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
from skewless.algorithms.keyed import KeyedTable
from skewless.algorithms.partials import merge_partials
from skewless.algorithms.sized import cut
from skewless.algorithms.windows import starts

MOST_CHUNKS = 32
"""A window is written anew when so many flushes' chunks are there; and no fewer than it was written anew as."""

TOLD = PartialColumn("told", source="one", merge="sum")
"""How often a key of a window was told beyond its closing; kept like an aggregate, so that it survives a restart."""


@dataclass(slots=True)
class Window:
    """One window that is held in memory: its rows, and what came for it since the last flush."""

    rows: KeyedTable
    chunks: list[int] = field(default_factory=list)
    """Numbers of its chunks, in the order in which they were written."""
    pending: list[pa.Table] = field(default_factory=list)


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
    keys: list[str]
    data: Mapping[str, NDArray[np.int64]]


class Windows:
    """All windows of one partition. A window is closed when the watermark has passed its end.

    With `updates` each flush tells what changed; without, a window is told once when it closes, and what changes later
    (an idle origin woke up) is told as a correction. `keep_ms` after its end a closed window is forgotten.
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
        self.closed_to: int | None = None
        """Windows that end at or before this are closed; it never goes back."""

    def __len__(self) -> int:
        return sum(len(window.rows) for window in self._held.values())

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

    def reopen(self, window: int, chunks: Mapping[int, pa.Table]) -> None:
        """Hold a closed window again until the next flush, so that what came for it can be merged into it."""
        self._held[window] = self._from_chunks(chunks)

    def _from_chunks(self, chunks: Mapping[int, pa.Table | None]) -> Window:
        window = Window(KeyedTable(self._columns), sorted(chunks, key=abs))
        for number in window.chunks:
            table = chunks[number]
            if table is not None:
                window.rows.merge(table["key"].to_pylist(), table)
        return window

    # Taking in

    def missing(self, panes: NDArray[np.int64]) -> set[int]:
        """Name closed windows that these panes belong to and that must be re-opened before the panes are merged."""
        found = np.unique(starts(panes, self._size_ms)).tolist()
        return {start for start in found if start in self._closed and start not in self._held}

    def merge(self, partials: pa.Table) -> pa.Table | None:
        """Merge partials (`pane`, `key` and the columns) into their windows; return those whose window is forgotten."""
        start_of = starts(partials["pane"].to_numpy(), self._size_ms)
        refused = []
        for start in np.unique(start_of).tolist():
            rows = np.flatnonzero(start_of == start)
            mine = partials if len(rows) == len(start_of) else partials.take(pa.array(rows))
            if self._is_forgotten(start):
                refused.append(mine)
            else:
                self._hold(start).pending.append(mine)
        return pa.concat_tables(refused) if refused else None

    def _hold(self, start: int) -> Window:
        if start not in self._held:
            self._held[start] = Window(KeyedTable(self._columns))
            self._see(start)
        return self._held[start]

    def _see(self, start: int) -> None:
        self._newest = start if self._newest is None else max(self._newest, start)

    # Giving out

    def flush(self, watermark: int | None) -> tuple[list[Chunk], list[Emission]]:
        """Tell what the changelog must remember and what is to be emitted; close what the watermark has passed."""
        if watermark is not None:
            self.closed_to = watermark if self.closed_to is None else max(self.closed_to, watermark)
        chunks: list[Chunk] = []
        emissions: list[Emission] = []
        for start in sorted(self._held):
            window = self._held[start]
            closing, again = self._is_closed(start), start in self._closed
            if window.pending:
                changed = self._take_in(start, window, chunks, again=again)
                if self._updates or again:
                    emissions.append(self._emission(start, window, changed))
            if closing:
                if not self._updates and not again:
                    emissions.append(self._emission(start, window, np.arange(len(window.rows))))
                self._closed[start] = window.chunks
                del self._held[start]
        return [*chunks, *self._forget()], emissions

    def _take_in(self, start: int, window: Window, chunks: list[Chunk], *, again: bool) -> NDArray[np.int64]:
        delta = merge_partials(window.pending, ("key",), [column for column in self._columns if column is not TOLD])
        told = np.full(delta.num_rows, self._updates, dtype=np.int64)
        if again and not self._updates:
            told[window.rows.holds(delta["key"].to_pylist())] = 1  # the others are told for the first time
        delta = delta.append_column(TOLD.name, pa.array(told))
        window.pending = []
        changed = window.rows.merge(delta["key"].to_pylist(), delta)
        chunks += self._remember(start, window, delta)
        return changed

    def _remember(self, start: int, window: Window, delta: pa.Table) -> Iterator[Chunk]:
        """Write what was merged; or the window anew, and take back what it was."""
        before = window.chunks
        merged = sum(number >= 0 for number in before)
        anew = merged >= max(MOST_CHUNKS, len(before) - merged)
        parts = list(cut(window.rows.table() if anew else delta))
        first = max(map(abs, before), default=-1) + 1
        numbers = [-number if anew else number for number in range(first, first + len(parts))]
        yield from map(Chunk, itertools.repeat(start), numbers, parts)
        if anew:
            yield from (Chunk(start, number, None) for number in before)
        window.chunks = numbers if anew else [*before, *numbers]

    def _emission(self, start: int, window: Window, rows: NDArray[np.int64]) -> Emission:
        keys = window.rows.keys()
        data = window.rows.data(rows)
        told = data.pop(TOLD.name)
        data["revision"] = told - 1 if self._updates else told
        return Emission(start, [keys[row] for row in rows.tolist()], data)

    def _is_closed(self, start: int) -> bool:
        return self.closed_to is not None and start + self._size_ms <= self.closed_to

    def _is_forgotten(self, start: int) -> bool:
        return self._is_closed(start) and start not in self._closed and self._is_old(start)

    def _is_old(self, start: int) -> bool:
        return self._newest is not None and start + self._size_ms + self._keep_ms <= self._newest

    def _forget(self) -> Iterator[Chunk]:
        for start in [start for start in self._closed if self._is_old(start)]:
            for number in self._closed.pop(start):
                yield Chunk(start, number, None)
