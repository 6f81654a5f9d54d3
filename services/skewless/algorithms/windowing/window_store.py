"""Store of the windows of one partition: merges panes into windows, emits results and writes changelog records."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn
from skewless.algorithms.partials import merge_partials
from skewless.algorithms.windowing.assigner import WindowAssigner
from skewless.algorithms.windowing.window import (
    CHUNK_ROWS,
    EMIT_COUNT,
    Chunk,
    ChunkId,
    Emission,
    Rows,
    WholeWindowRows,
    Window,
    WindowEvent,
    WindowRows,
    WindowState,
    current_chunks,
)

KEPT_FLUSHES = 20
"""A reopened window is kept for this many flushes without new rows, because a reopen reads its whole changelog."""
PENDING_ROWS = 131_072
"""Maximum pending rows of a partition. With more, they are merged into their windows."""
PENDING_BYTES = 64 * 2**20
"""Maximum bytes of pending rows of a partition. This limit matters for long keys and large binary partials."""

NEVER = 2**63 - 1


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
        self._assigner = windows
        self._retention_ms = retention_ms
        self._updates = updates
        self._emit_interval_ms = emit_interval_ms
        self._windows: dict[int, Window] = {}
        """The windows by start, without those that have expired. Most of them are closed."""
        self._starts: list[int] = []
        """Their starts as a heap: the oldest first."""
        self._loaded: dict[int, Window] = {}
        """Those of them that were in memory after the last flush, or have been loaded since then."""
        self._expired: list[Window] = []
        """Windows that have expired. The next flush deletes their chunks."""
        self.newest: int | None = None
        """Start of the newest window, which event time has reached. None before the first."""
        self._pending: dict[int, list[pa.Table]] = {}
        """Partials that are not yet merged into their windows, by the start of their slice."""
        self._pending_rows = self._pending_bytes = 0
        self.closed_until: int | None = None
        """Windows that end at or before this time are closed. It never decreases."""
        self.expired_until: int | None = None
        """Windows that end at or before this time have expired. It never decreases, also if the retention is raised."""

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self._in_memory())

    @property
    def nbytes(self) -> int:
        """Bytes of all windows in memory, and of pending partials."""
        return sum(rows.nbytes for _, rows in self._in_memory()) + self._pending_bytes

    def reducible(self, kept: int) -> dict[int, int]:
        """Return the bytes of each window in memory that `reduce` may make smaller, by its start."""
        return {
            window.start: rows.nbytes
            for window, rows in self._in_memory()
            if isinstance(rows, WindowRows) and rows.is_reducible(kept)
        }

    @property
    def open(self) -> int:
        """Number of windows that were never closed."""
        return sum(window.state in (WindowState.OPEN, WindowState.DEFERRED) for window in self._loaded.values())

    @property
    def kept_ms(self) -> int | None:
        """Distance of `expired_until` from `closed_until`.

        It is shorter than the retention if this was raised, and longer after a bounded run.
        """
        if self.closed_until is None or self.expired_until is None:
            return None
        return self.closed_until - self.expired_until

    @property
    def starts(self) -> Collection[int]:
        """Starts of the windows in memory."""
        return [window.start for window, _ in self._in_memory()]

    @property
    def end(self) -> int | None:
        """End of the newest window, None before the first. The last flush of a bounded run closes windows up to here.

        It does not close all of time: more records may arrive after the bounded run, and their windows are open.
        """
        return None if self.newest is None else self._assigner.end(self.newest)

    def _in_memory(self) -> Iterator[tuple[Window, Rows]]:
        return ((window, window.rows) for window in self._loaded.values() if window.rows is not None)

    def _new_rows(self, chunks: Mapping[ChunkId, pa.Table | None]) -> Rows:
        """Return the rows of a window with these chunks."""
        return WindowRows(self._columns, chunks)

    def _reduced(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge partials of a slice to one row per row of its windows."""
        return merge_partials(tables, ("key",), self._columns[:-1])

    # Restore and reopen

    def restore_time(self, closed_until: int | None, kept_ms: int | None) -> None:
        """Restore `closed_until` and `kept_ms`, before the windows. Without `kept_ms`, it is the present retention."""
        if closed_until is not None:
            self.closed_until = closed_until
            self.expired_until = closed_until - (self._retention_ms if kept_ms is None else kept_ms)

    def restore(self, start: int, chunks: Mapping[ChunkId, pa.Table | None]) -> None:
        """Restore a window from its chunks. A closed window needs only their identifiers: tables may be None."""
        self._update_newest(start)
        window = Window(start, WindowState.CLOSED, sorted(chunks))
        if self._is_past_retention(start):
            self._expire(window)
            return
        self._add(window)
        if not self._is_closed(start):
            rows = self._load(window, chunks)
            rows.emit_at = NEVER  # the time of the last emission is unknown
            window.state = WindowState.DEFERRED if len(rows.deferred) else WindowState.OPEN

    def reopen(self, start: int, chunks: Mapping[ChunkId, pa.Table]) -> bool:
        """Load a closed window into memory, so that late partials can be merged. Returns whether it was loaded.

        It is not loaded if it expired, or another batch reopened it, while its chunks were fetched.
        """
        must_load = self._is_unloaded(start)
        if must_load:
            window = self._windows[start]
            window.apply(WindowEvent.REOPEN)
            self._load(window, chunks)
            self._loaded[start] = window
        return must_load

    def _load(self, window: Window, chunks: Mapping[ChunkId, pa.Table | None]) -> Rows:
        window.chunks, current = sorted(chunks), current_chunks(chunks)
        window.rows = rows = self._new_rows(current)
        window.uncompacted_rows = sum(
            CHUNK_ROWS + (0 if table is None else table.num_rows)
            for chunk, table in current.items()
            if not chunk.compacted
        )
        return rows

    def _is_unloaded(self, start: int) -> bool:
        return start in self._windows and self._windows[start].state is WindowState.CLOSED

    def release(self) -> None:
        """Remove reopened windows without unwritten changes from memory. There must be no pending partials."""
        for window, rows in self._in_memory():
            if window.state is WindowState.REOPENED and not rows.has_changes:
                window.apply(WindowEvent.RELEASE)

    # Merge

    def windows_to_reopen(self, panes: NDArray[np.int64]) -> set[int]:
        """Return the closed windows of these panes that must be reopened before the panes are merged."""
        slices = np.unique(self._assigner.slices(panes)).tolist()
        windows = {start for slice_start in slices for start in self._assigner.windows_of(slice_start)}
        return {start for start in windows if self._is_unloaded(start)}

    def merge(self, partials: pa.Table) -> pa.Table | None:
        """Merge partials (`pane`, `key` and the columns) into their windows. Returns those whose window has expired.

        If windows overlap, the returned partials have the additional column `window`: the start of the expired window.
        """
        slice_of = self._assigner.slices(partials["pane"].to_numpy())
        expired = []
        for slice_start in np.unique(slice_of).tolist():
            rows = np.flatnonzero(slice_of == slice_start)
            slice_partials = partials if len(rows) == len(slice_of) else partials.take(pa.array(rows))
            windows = self._assigner.windows_of(slice_start)
            expired += [self._rejected(slice_partials, start) for start in windows if self._is_expired(start)]
            if not self._is_expired(windows[-1]):
                self._add_pending(slice_start, slice_partials)
        if self._pending_rows > PENDING_ROWS or self._pending_bytes > PENDING_BYTES:
            self.absorb()
        return pa.concat_tables(expired) if expired else None

    def _rejected(self, partials: pa.Table, start: int) -> pa.Table:
        if self._assigner.overlap == 1:
            return partials
        return partials.append_column("window", pa.array(np.full(partials.num_rows, start)))

    def _add_pending(self, slice_start: int, partials: pa.Table) -> None:
        """Add partials to the pending ones, and create their windows."""
        pending = partials.select(["key", *(column.name for column in self._columns[:-1])])
        self._pending.setdefault(slice_start, []).append(pending)
        self._pending_rows += pending.num_rows
        self._pending_bytes += pending.nbytes
        for start in self._assigner.windows_of(slice_start):
            if self._is_expired(start):
                continue
            if start not in self._windows:
                self._add(Window(start, WindowState.OPEN, rows=self._new_rows({})))
                self._update_newest(start)
            self._windows[start].apply(WindowEvent.MERGE)

    def _add(self, window: Window) -> None:
        self._windows[window.start] = self._loaded[window.start] = window
        heapq.heappush(self._starts, window.start)

    def _update_newest(self, start: int) -> None:
        self.newest = start if self.newest is None else max(self.newest, start)

    def reduce(self, start: int, kept: int, reduced: Callable[[pa.Table, int], pa.Table]) -> int:
        """Replace the rows of a window in memory by fewer ones. Return the bytes that became free. Not for `updates`.

        `reduced` takes and returns `key` and the columns. It also takes `kept`: with a smaller number it returns fewer
        rows. The next flush writes all rows of the window, and deletes the previous ones.
        """
        window = self._windows[start]
        if not isinstance(window.rows, WindowRows):
            return 0
        before, window.rows = window.rows.nbytes, window.rows.reduced(kept, reduced)
        return before - window.rows.nbytes

    # Flush

    def absorb(self) -> None:
        """Merge the pending partials into the rows of their windows."""
        pending, self._pending = self._pending, {}
        self._pending_rows = self._pending_bytes = 0
        for slice_start, tables in pending.items():
            merged = self._reduced(tables)
            for start in self._assigner.windows_of(slice_start):
                window = self._windows.get(start)
                if window is not None and window.rows is not None:  # otherwise it has expired
                    reopened = window.state is WindowState.REOPENED
                    window.rows.merge(merged, updates=self._updates, reopened=reopened)

    def advance(self, watermark: int | None, reached: int | None = None) -> None:
        """Note the watermark. Before the next flush, no window in memory may end at or before it.

        `reached` is the time from which the retention of closed windows is measured, by default the watermark.
        """
        if watermark is not None:
            self.closed_until = _later(watermark, self.closed_until)
            # Retention is not relative to the newest window: one record far ahead would expire all closed windows.
            reached = watermark if reached is None else reached
            self.expired_until = _later(reached - self._retention_ms, self.expired_until)

    def flush(self, watermark: int | None, now: int, reached: int | None = None) -> Iterator[Chunk | Emission]:
        """Yield changelog records and emissions, and close the windows whose end the watermark has passed.

        `now` is the wall-clock time in ms; `reached` as in `advance`.
        """
        self.absorb()
        self.advance(watermark, reached)
        for window, rows in sorted(self._in_memory(), key=lambda held: held[0].start):
            rows.unchanged_flushes += 1
            # The limit is for a restored window, and for a clock that was set back.
            rows.emit_at = min(rows.emit_at, now + self._emit_interval_ms)
            event = self._due(window, rows, now)
            if event is not None:
                yield from rows.flush(window, event, updates=self._updates, closed_until=self.closed_until)
                window.apply(event)
            if event is WindowEvent.EMIT:
                rows.emit_at = now + self._emit_interval_ms
        # Without transactions, chunks must be kept until the checkpoint of the flush that expired them is committed. If
        # the commit failed, the window would be open again, and empty.
        expired, self._expired = self._expired, []
        for window in expired:
            yield from window.tombstones(window.chunks)
        while self._starts and self._is_past_retention(self._starts[0]):
            self._expire(self._windows.pop(heapq.heappop(self._starts)))
        self._loaded = {start: window for start, window in self._loaded.items() if window.rows is not None}

    def _due(self, window: Window, rows: Rows, now: int) -> WindowEvent | None:
        """Return the event of a window in memory at a flush; None if there is none."""
        if window.state is WindowState.REOPENED:
            if rows.has_changes:
                return WindowEvent.CORRECT
            return WindowEvent.RELEASE if rows.unchanged_flushes > KEPT_FLUSHES else None
        if self._is_closed(window.start):
            return WindowEvent.CLOSE
        if now < rows.emit_at:
            return WindowEvent.DEFER if rows.has_changes else None
        return WindowEvent.EMIT if rows.has_changes or window.state is WindowState.DEFERRED else None

    def _expire(self, window: Window) -> None:
        window.apply(WindowEvent.EXPIRE)
        self._expired.append(window)

    def _is_closed(self, start: int) -> bool:
        return self.closed_until is not None and self._assigner.end(start) <= self.closed_until

    def _is_expired(self, start: int) -> bool:
        return start not in self._windows and self._is_past_retention(start)

    def _is_past_retention(self, start: int) -> bool:
        return self.expired_until is not None and self._assigner.end(start) <= self.expired_until


def _later(time: int, other: int | None) -> int:
    return time if other is None else max(time, other)


class WholeWindowStore(WindowStore):
    """A store that also yields each window with all its rows before some of them are emitted, and when it closes."""

    def _new_rows(self, chunks: Mapping[ChunkId, pa.Table | None]) -> Rows:
        return WholeWindowRows(self._columns, chunks)
