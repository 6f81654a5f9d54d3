"""Store of the sessions of one partition. Its windows are spans, each with the sessions of all keys in it.

A session is identified by its key and the time of its first tuple, and an earlier tuple changes this identity. So do
tuples between two sessions: the later one is swallowed by the earlier one. The store then deletes the emissions of the
previous identity, which never comes back.

A row of a chunk covers the whole time of a session, and has the partials of its new tuples only. So the sessions of a
span are the merge of its current chunks, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skewless.algorithms.aggregates import PartialColumn
from skewless.algorithms.keyed_table import TEXT_BYTES
from skewless.algorithms.windowing.sessions import FIRST, LAST, SessionWindows
from skewless.algorithms.windowing.window import (
    EMIT_COUNT,
    PORTION_BYTES,
    PORTION_ROWS,
    Chunk,
    ChunkId,
    Emission,
    Rows,
    Tables,
    Window,
    WindowEvent,
    WindowState,
)
from skewless.algorithms.windowing.window_store import NEVER, WindowStore
from skewless.errors import LimitError

MAX_CHUNKS = 256
"""Closed sessions in more chunks of Arrow than this are combined."""
_BEGINNING = -(2**63)


class SessionStore(WindowStore):
    """All sessions of one partition. A session is closed when the watermark has passed its end.

    With `updates` each flush emits the changed sessions; otherwise a session is emitted once when it closes. In both
    cases, a closed session that changes later is emitted as a correction.
    """

    def __init__(
        self, columns: Sequence[PartialColumn], windows: SessionWindows, retention_ms: int, *, updates: bool
    ) -> None:
        super().__init__(columns, windows, retention_ms, updates=updates)
        self._sessions = windows

    @property
    def end(self) -> int | None:
        """End of the newest session, None before the first. Later tuples of its span are not of a closed session."""
        # The newest span may have expired, if other partitions have later keys.
        window = None if self.newest is None else self._windows.get(self.newest)
        rows = None if window is None else window.rows
        return rows.end if isinstance(rows, SessionRows) else super().end

    def _new_rows(self, chunks: Mapping[ChunkId, pa.Table | None]) -> Rows:
        return SessionRows(self._columns, self._sessions, self.closed_until, chunks)

    def _reduced(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self._sessions.sessions(pa.concat_tables(tables), self._columns[:-1])

    def _due(self, window: Window, rows: Rows, now: int) -> WindowEvent | None:
        event = super()._due(window, rows, now)
        if event is None and window.state is WindowState.OPEN and isinstance(rows, SessionRows):
            return WindowEvent.EMIT if not self._updates and rows.has_closing(self.closed_until) else None
        return event


class SessionRows(Rows):
    """Sessions of a span. `columns` ends with EMIT_COUNT.

    EMIT_COUNT is the number of emissions of the identity of a session. Without `updates`, that of a closed session is
    not counted before the session changes again.
    """

    def __init__(
        self,
        columns: Sequence[PartialColumn],
        windows: SessionWindows,
        closed_until: int | None,
        chunks: Mapping[ChunkId, pa.Table | None],
    ) -> None:
        super().__init__()
        self._columns = columns
        self._windows = windows
        self._emitted_until = _or_beginning(closed_until)
        """Time up to which sessions were closed at the last flush. Without `updates`, these are emitted."""
        self._changes: pa.Table | None = None
        """Partial sessions since the last flush, by key and time."""
        schema = pa.schema([("key", pa.string()), *((column.name, column.type) for column in columns)])
        tables = [table.select(schema.names).cast(schema) for table in chunks.values() if table is not None]
        self._table = self._merged(pa.concat_tables([schema.empty_table(), *tables]))[0]
        self._closed: pa.Table = schema.empty_table()
        """Sessions that were closed at the last flush. Only a tuple of a partition that was idle can change them."""

    def __len__(self) -> int:
        return int(self._table.num_rows) + int(self._closed.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of sessions and changes."""
        tables = [self._table, self._closed, *([] if self._changes is None else [self._changes])]
        return sum(int(table.nbytes) for table in tables)

    @property
    def has_changes(self) -> bool:
        """Whether partial sessions were merged since the last flush."""
        return self._changes is not None

    @property
    def end(self) -> int:
        """End of the newest session that was not closed at the last flush."""
        tables = [self._table] if self._changes is None else [self._table, self._changes]
        return max(int(self._ends(table).max(initial=_BEGINNING)) for table in tables)

    def has_closing(self, closed_until: int | None) -> bool:
        """Return whether sessions have closed since the last flush."""
        return bool(self._are_closing(self._ends(self._table), closed_until).any())

    def merge(self, partials: pa.Table, *, updates: bool, reopened: bool) -> None:  # noqa: ARG002 - counted by `flush`
        """Merge partial sessions."""
        tables = [partials] if self._changes is None else [self._changes, partials]
        self._changes = self._windows.sessions(pa.concat_tables(tables), self._columns[:-1])

    def flush(
        self,
        window: Window,
        event: WindowEvent,  # noqa: ARG002 - sessions close at times of their own
        *,
        updates: bool,
        closed_until: int | None,
    ) -> Iterator[Chunk | Emission]:
        """Write the changed sessions, delete what was emitted of swallowed ones, and emit what is due."""
        self.unchanged_flushes = 0 if self.has_changes else self.unchanged_flushes
        changed = np.zeros(self._table.num_rows, dtype=np.bool_)
        if self._changes is not None:
            if int(self._changes[FIRST.name].to_numpy().min()) < self._emitted_until:
                self._table = _joined(self._table, self._closed).combine_chunks()
                self._closed = self._closed.schema.empty_table()
            changed, chunk, swallowed = self._apply(self._changes, updates=updates)
            self._changes = None
            yield from window.write(_portions(chunk), lambda: _portions(_joined(self._closed, self._table)))
            for part, _ in _portions(swallowed):
                yield Emission(window.start, part["key"].combine_chunks(), self._bounds(part), deletes=True)
        ends = self._ends(self._table)
        is_due = (
            changed
            if updates
            else self._are_closing(ends, closed_until) | (changed & (ends <= _or_beginning(closed_until)))
        )
        due = self._table.filter(pa.array(is_due))
        self._emitted_until = max(self._emitted_until, _or_beginning(closed_until))
        self._set_closed_aside(ends <= self._emitted_until)
        for part, _ in _portions(due):
            data = {column.name: column.from_arrow(part[column.name]) for column in self._columns}
            emit_counts = data.pop(EMIT_COUNT.name)
            data["revision"] = emit_counts - 1 if updates else emit_counts
            yield Emission(window.start, part["key"].combine_chunks(), data | self._bounds(part))

    def _set_closed_aside(self, is_closed: NDArray[np.bool_]) -> None:
        if not is_closed.any():
            return
        self._closed = _joined(self._closed, self._table.filter(pa.array(is_closed)))
        if self._closed["key"].num_chunks > MAX_CHUNKS:
            self._closed = self._closed.combine_chunks()
        self._table = self._table.filter(pa.array(~is_closed))

    def _apply(self, changes: pa.Table, *, updates: bool) -> tuple[NDArray[np.bool_], pa.Table, pa.Table]:
        """Merge changes into the sessions of their keys.

        Returns for each session whether it has changed, the rows of the next chunk, and the swallowed sessions that
        were emitted.
        """
        is_touched = pc.is_in(self._table["key"], value_set=changes["key"].combine_chunks())
        touched, others = self._table.filter(is_touched), self._table.filter(pc.invert(is_touched))
        added = changes.append_column(EMIT_COUNT.name, pa.array(np.zeros(changes.num_rows, dtype=np.int64)))
        merged, session_of = self._merged(pa.concat_tables([touched, added]))
        of_touched, of_added = session_of[: touched.num_rows], session_of[touched.num_rows :]
        changed = np.zeros(merged.num_rows, dtype=np.bool_)
        changed[of_added] = True
        is_kept = touched[FIRST.name].to_numpy() == merged[FIRST.name].to_numpy()[of_touched]
        if updates:
            emissions, was_emitted = changed.astype(np.int64), touched[EMIT_COUNT.name].to_numpy() > 0
        else:
            # The emission of a closed session counts from its change on, because the session may be open again.
            is_closed = self._ends(touched) <= self._emitted_until
            emissions = np.zeros(merged.num_rows, dtype=np.int64)
            emissions[of_touched[is_kept & is_closed]] = 1
            emissions[~changed] = 0
            was_emitted = is_closed | (touched[EMIT_COUNT.name].to_numpy() > 0)
        merged = _with(merged, EMIT_COUNT.name, merged[EMIT_COUNT.name].to_numpy() + emissions)
        sessions, dense = np.unique(of_added, return_inverse=True)
        chunk = self._windows.merged(added, dense, self._columns)
        for column, values in ((FIRST, merged[FIRST.name]), (LAST, merged[LAST.name]), (EMIT_COUNT, emissions)):
            chunk = _with(chunk, column.name, np.asarray(values)[sessions])
        self._table = _joined(others, merged).combine_chunks()
        is_changed = np.concatenate((np.zeros(others.num_rows, dtype=np.bool_), changed))
        return is_changed, chunk, touched.filter(pa.array(was_emitted & ~is_kept))

    def _merged(self, table: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
        """Merge rows to sessions. Emissions of an identity that a session no longer has are not counted.

        Returns the sessions with the index of the session of each row.
        """
        session_of, firsts = self._windows.session_of(table), table[FIRST.name].to_numpy()
        first_of = np.full(int(session_of.max(initial=-1)) + 1, NEVER, dtype=np.int64)
        np.minimum.at(first_of, session_of, firsts)
        counted = np.where(firsts == first_of[session_of], table[EMIT_COUNT.name].to_numpy(), 0)
        return self._windows.merged(_with(table, EMIT_COUNT.name, counted), session_of, self._columns), session_of

    def _ends(self, table: pa.Table) -> NDArray[np.int64]:
        return self._windows.ends_of(table[FIRST.name].to_numpy(), {LAST.name: table[LAST.name].to_numpy()})

    def _bounds(self, table: pa.Table) -> dict[str, NDArray[Any]]:
        return {"window_start": table[FIRST.name].to_numpy(), "window_end": self._ends(table)}

    def _are_closing(self, ends: NDArray[np.int64], closed_until: int | None) -> NDArray[np.bool_]:
        return (ends > self._emitted_until) & (ends <= _or_beginning(closed_until))


def _or_beginning(time: int | None) -> int:
    return _BEGINNING if time is None else time


def _joined(*tables: pa.Table) -> pa.Table:
    """Return the rows of some tables. Raises LimitError if their keys do not fit into an Arrow array."""
    joined = pa.concat_tables(tables)
    if joined["key"].nbytes > TEXT_BYTES:
        raise LimitError(
            f"the keys of the sessions of one span have more than {TEXT_BYTES} bytes in one partition: use a shorter "
            "aggregator.window.session.max_s, or more topics.aggregator_partitions, for a new pipeline"
        )
    return joined


def _with(table: pa.Table, name: str, values: NDArray[np.int64]) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def _portions(table: pa.Table) -> Tables:
    """Cut a table into parts of bounded size. No emission is deferred."""
    bytes_per_row = max(1, table.nbytes // max(1, table.num_rows))
    size = max(1, min(PORTION_ROWS, PORTION_BYTES // bytes_per_row))
    return ((table.slice(first, size), False) for first in range(0, table.num_rows, size))
