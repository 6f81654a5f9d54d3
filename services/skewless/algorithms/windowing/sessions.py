"""Session windows: tuples of a key form a session as long as each one comes less than a gap after an earlier one.

A *span* is a tumbling window of the maximum length. A session never crosses the end of its span, so its length does not
depend on the order of tuples. A *partial session* is a partial of a key with the times of its first and last tuple. It
is within one session and one span, as is each pane that is not longer than the gap. Partial sessions merge if less than
the gap lies between them. The result does not depend on their order, nor on how the tuples were divided among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates import IntegerColumn, PartialColumn, Partials, Tuples
from skewless.algorithms.partials import merge_partials
from skewless.algorithms.windowing.assigner import WindowAssigner, starts


def _times(tuples: Tuples) -> NDArray[np.int64]:
    return tuples.times


FIRST = IntegerColumn("session_first", _times, "min", value=None)
LAST = IntegerColumn("session_last", _times, "max", value=None)
"""Event times in ms of the first and the last tuple of a partial session."""
SESSION = "session_number"
"""Column with the session of a row while rows are merged."""


@dataclass(frozen=True, slots=True)
class SessionWindows(WindowAssigner):
    """Sessions. As an assigner of windows it assigns times to spans, which are the windows of the changelog.

    A session ends `gap_ms` after its last tuple, or at the end of its span if that is earlier. So sessions of a key do
    not overlap.
    """

    gap_ms: int
    max_ms: int
    """Length of a span."""

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        """Columns of partials in addition to those of the aggregates."""
        return FIRST, LAST

    @property
    def max_pane_ms(self) -> int:
        """Maximum length of a pane in ms."""
        return self.gap_ms

    def slices(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each time the start of its span."""
        return starts(times, self.max_ms)

    def end(self, start: int) -> int:
        """Return the end of the span that begins at `start`."""
        return start + self.max_ms

    def first_ends(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each time the watermark from which on a tuple is late: the next millisecond.

        A session that ended before this watermark is closed, and the tuple could be part of it.
        """
        return times + 1

    def grid_ms(self, earliest: int, latest: int) -> int:  # noqa: ARG002 - the same at all times
        """Return the largest span of time of which all starts and ends of spans are multiples."""
        return self.max_ms

    def ends_of(self, starts: NDArray[np.int64], partials: Partials) -> NDArray[np.int64]:
        """Return the ends of sessions with these first times and partials."""
        ends: NDArray[np.int64] = np.minimum(partials[LAST.name] + self.gap_ms, self.slices(starts) + self.max_ms)
        return ends

    def merge(self, tables: Sequence[pa.Table], columns: Sequence[PartialColumn]) -> pa.Table:
        """Merge partial sessions. The result has the columns `pane` (start of the span), `key` and `columns`."""
        sessions = self.sessions(pa.concat_tables(tables), columns)
        return sessions.add_column(0, "pane", pa.array(self.slices(sessions[FIRST.name].to_numpy())))

    def sessions(self, table: pa.Table, columns: Sequence[PartialColumn]) -> pa.Table:
        """Merge partial sessions to sessions with the columns `key` and `columns`, by key and time."""
        return self.merged(table, self.session_of(table), columns)

    def session_of(self, table: pa.Table) -> NDArray[np.int64]:
        """Return the index of the session of each partial session. Sessions are numbered by key and time."""
        keys: pa.DictionaryArray = table["key"].combine_chunks().dictionary_encode()
        return self._session_of(keys.indices.to_numpy(), table[FIRST.name].to_numpy(), table[LAST.name].to_numpy())

    def merged(self, table: pa.Table, session_of: NDArray[np.int64], columns: Sequence[PartialColumn]) -> pa.Table:
        """Merge the rows of each session, which are of one key. The result is in the order of the sessions."""
        if not table.num_rows:
            return table.select(["key", *(column.name for column in columns)])
        merged = merge_partials([table.append_column(SESSION, pa.array(session_of))], (SESSION,), columns)
        _, row_of = np.unique(session_of, return_index=True)
        keys = table["key"].combine_chunks().take(pa.array(row_of))
        return merged.sort_by(SESSION).drop_columns(SESSION).add_column(0, "key", keys)

    def _session_of(
        self, keys: NDArray[np.int32], firsts: NDArray[np.int64], lasts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        order = np.lexsort((firsts, keys))
        keys, firsts, lasts = keys[order], firsts[order], lasts[order]
        # The running maximum of a key begins again at the next key: its ranks are above those of earlier keys.
        times, ranks = np.unique(lasts, return_inverse=True)
        newest = times[np.maximum.accumulate(ranks + keys.astype(np.int64) * len(times)) % len(times)]
        is_start = np.ones(len(order), dtype=np.bool_)
        is_start[1:] = (keys[1:] != keys[:-1]) | (firsts[1:] - newest[:-1] >= self.gap_ms)
        spans = self.slices(firsts)
        is_start[1:] |= spans[1:] != spans[:-1]
        session_of = np.empty(len(order), dtype=np.int64)
        session_of[order] = np.cumsum(is_start) - 1
        return session_of
