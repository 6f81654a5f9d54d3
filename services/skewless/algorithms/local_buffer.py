"""Local aggregation: reduces the tuples of a source partition to one row per pane and key before they are sent.

This is the first phase of a two-phase aggregation; workers merge the rows. A key has at most one row per flush and
pane, however hot it is. A buffer that is flushed before each commit is not state; `LocalWindows` keeps rows
for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from skewless.algorithms.aggregates import LOAD_COLUMN, PartialColumn
from skewless.algorithms.partials import merge_partials, to_partials

BUFFER_BYTES = 64 * 2**20
"""Maximum bytes of a buffer. Above it, tuples are reduced; rows of more than half of it are flushed."""
OFF_RATIO = 0.7
"""Rows per tuple of a flush above which aggregation does not pay."""
OFF_FLUSHES = 4
"""Number of consecutive flushes with more rows per tuple than that which switch an adaptive buffer off."""
ON_RATIO = 0.6
"""Rows per tuple of a probe below which the buffer is switched on again."""
PROBE_BATCHES = 64
"""While the buffer is off, one of so many batches is a probe: it is reduced to measure its rows per tuple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRules:
    """Settings of local aggregation."""

    columns: Sequence[PartialColumn]
    """Partial columns. LOAD_COLUMN is one of them."""
    pane_ms: int
    max_rows: int
    """Rows above which a buffer must be flushed. Until then, as many tuples are not reduced yet."""
    adaptive: bool = False
    """Whether a buffer is switched off while it has nearly as many rows as tuples."""


class Flush(NamedTuple):
    """Content of a buffer that was flushed."""

    rows: pa.Table
    """Result of `to_partials`."""
    tuples: int
    """Number of tuples in these rows."""


class LocalBuffer:
    """Tuples of one source partition since the last flush, some of them reduced to rows."""

    def __init__(self, rules: LocalRules) -> None:
        self._rules = rules
        self.active = True
        """Whether the buffer accepts tuples. Only an adaptive one may be off; it is empty then."""
        self._flushes_above = 0
        """Number of the last consecutive flushes with more rows per tuple than OFF_RATIO."""
        self._batches_since_probe = 0
        self._tuples: list[pa.RecordBatch] = []
        self._unreduced = self._unreduced_bytes = 0
        self._rows: pa.Table | None = None

    def __len__(self) -> int:
        """Return the number of rows and of tuples that are not reduced."""
        return self._unreduced + (0 if self._rows is None else self._rows.num_rows)

    def add(self, tuples: pa.RecordBatch) -> bool:
        """Add tuples, which have the columns of `to_partials`. Returns False if they must be sent as they are."""
        if not self.active and not self._is_probe_successful(tuples):
            return False
        self._tuples.append(tuples)
        self._unreduced += tuples.num_rows
        self._unreduced_bytes += tuples.nbytes
        if self._unreduced >= self._rules.max_rows or self._bytes() > BUFFER_BYTES:
            self._reduce()
        return True

    @property
    def is_full(self) -> bool:
        """Whether the buffer must be flushed before more tuples are added."""
        rows = self._rows
        return rows is not None and (rows.num_rows >= self._rules.max_rows or rows.nbytes > BUFFER_BYTES // 2)

    def reduced(self) -> pa.Table:
        """Return the rows since the last flush, which stay."""
        self._reduce()
        return to_partials([], self._rules.pane_ms, self._rules.columns) if self._rows is None else self._rows

    def take(self, before: int | None = None) -> Flush:
        """Return the rows since the last flush, and remove them. Raises ValueError if the buffer is empty.

        With `before`, a time in ms, only the rows of panes that begin before it.
        """
        if not len(self):
            raise ValueError("the buffer is empty")
        taken, kept = self.reduced(), None
        if before is not None:
            is_taken = pa.array(taken["pane"].to_numpy() < before)
            taken, kept = taken.filter(is_taken), taken.filter(pc.invert(is_taken))
        flush = Flush(taken, int(taken[LOAD_COLUMN.name].to_numpy().sum()))
        self._rows = kept if kept is not None and kept.num_rows else None
        if self._rules.adaptive:
            self._adapt(flush.rows.num_rows / flush.tuples)
        return flush

    def _bytes(self) -> int:
        return self._unreduced_bytes + (0 if self._rows is None else self._rows.nbytes)

    def _reduce(self) -> None:
        if not self._tuples:
            return
        rows = to_partials(self._tuples, self._rules.pane_ms, self._rules.columns)
        if self._rows is not None:
            rows = merge_partials([self._rows, rows], ("pane", "key"), self._rules.columns)
        self._rows, self._tuples, self._unreduced, self._unreduced_bytes = rows, [], 0, 0

    def _adapt(self, ratio: float) -> None:
        self._flushes_above = self._flushes_above + 1 if ratio > OFF_RATIO else 0
        if self._flushes_above == OFF_FLUSHES:
            self.active, self._flushes_above, self._batches_since_probe = False, 0, 0

    def _is_probe_successful(self, tuples: pa.RecordBatch) -> bool:
        """Return whether the buffer is on again because of these tuples. Only every PROBE_BATCHES-th call measures."""
        self._batches_since_probe += 1
        if self._batches_since_probe == PROBE_BATCHES:
            self._batches_since_probe = 0
            rows = to_partials([tuples], self._rules.pane_ms, self._rules.columns)
            self.active = rows.num_rows < ON_RATIO * tuples.num_rows
        return self.active
