"""Local aggregation in a simulation: one row per pane and key of a batch, as the splitter sends them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping import KeyBatch


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one flush of a splitter."""

    batch: KeyBatch
    """Key of each row, with the start of its pane as time."""
    row_of: NDArray[np.int64]
    """Per tuple: the index of its row."""


def reduced(tuples: KeyBatch, pane_ms: int) -> RowBatch:
    """Return the rows of tuples, in the order of their panes."""
    panes = tuples.times // pane_ms
    first, size = int(panes.min(initial=0)), max(1, len(tuples.keys))
    groups, row_of = np.unique((panes - first) * size + tuples.codes, return_inverse=True)
    batch = KeyBatch(tuples.keys, (groups % size).astype(np.int32), (groups // size + first) * pane_ms)
    return RowBatch(batch, row_of)
