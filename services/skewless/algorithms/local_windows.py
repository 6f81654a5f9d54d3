"""Local windows: tuples of a source partition that are reduced, and held until its watermark passes their window.

A local window has one row per key. What is held survives a restart without a copy: the records from which it came are
read again. So the offset of the first of them is known, to the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.local_buffer import Flush, LocalBuffer, LocalRules
from skewless.algorithms.windowing.assigner import starts


class Opening(NamedTuple):
    """The source record with the first held tuple of a local window."""

    offset: int
    max_time: int | None
    """Largest event time in ms of the records before it; None if it is the first record with a time."""


class LocalWindows(LocalBuffer):
    """Held tuples of one source partition by local window. `rules.pane_ms` is the length of a window."""

    def __init__(self, rules: LocalRules, lateness_ms: int) -> None:
        super().__init__(rules)
        self._window_ms = rules.pane_ms
        self._lateness_ms = lateness_ms
        self.openings: dict[int, Opening] = {}
        """Opening of each held window, by its start in ms. Those of `first_of_new` must be set before `add`."""
        self.tuples = 0
        """Number of held tuples."""
        self.floor: int | None = None
        """End in ms of the newest window that the watermark closed. After `close`, no held tuple is before it."""

    def restore(self, rows: pa.Table, tuples: int, openings: Mapping[int, Opening], floor: int | None) -> None:
        """Hold tuples that were read again. The object must be new."""
        self._rows, self.openings, self.tuples, self.floor = rows, dict(openings), tuples, floor

    def first_of_new(self, times: NDArray[np.int64]) -> dict[int, int]:
        """Return the windows of these event times that are not held, each with the index of its first time."""
        windows = starts(times, self._window_ms)
        distinct, first = np.unique(windows, return_index=True)
        return {
            start: index
            for start, index in zip(distinct.tolist(), first.tolist(), strict=True)
            if start not in self.openings
        }

    def add(self, tuples: pa.RecordBatch) -> bool:
        """Hold tuples, which have the columns of `to_partials`. Returns True."""
        self.tuples += tuples.num_rows
        return super().add(tuples)

    def close(self, watermark: int | None) -> Flush | None:
        """Take the rows of the windows that end at or before the watermark of the partition; None without such rows."""
        if watermark is None:
            return None
        end = watermark // self._window_ms * self._window_ms
        self.floor = end if self.floor is None else max(self.floor, end)
        return self.take(before=end) if min(self.openings, default=end) < end else None

    def take(self, before: int | None = None) -> Flush:
        """Take all rows, or those of the windows that begin before a time in ms. Raises ValueError without any row."""
        flush = super().take(before)
        self.openings = {start: each for start, each in self.openings.items() if before is not None and start >= before}
        self.tuples -= flush.tuples
        return flush

    def first_held(self) -> Opening | None:
        """Return where the held tuples begin; None if there are none."""
        return min(self.openings.values(), default=None, key=lambda opening: opening.offset)

    def max_watermark(self) -> int | None:
        """Return the largest watermark in ms before whose windows no held tuple is; None if there are none.

        It never decreases. A window of the results ends where a local window ends. So a watermark that closes no held
        local window closes no window of a held tuple.
        """
        # Without the watermark at its opening, the result would decrease when a window is opened that contains it.
        watermarks = [self._max_watermark_of(start, opening) for start, opening in self.openings.items()]
        return min(watermarks, default=None)

    def _max_watermark_of(self, start: int, opening: Opening) -> int:
        bounds = [start, self.floor]
        bounds.append(None if opening.max_time is None else opening.max_time - self._lateness_ms)
        return max(bound for bound in bounds if bound is not None)
