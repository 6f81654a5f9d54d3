"""Tumbling event-time panes and windows: spans [start, start + size) of integer milliseconds, aligned to 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pane_starts(times: NDArray[np.int64], size_ms: int) -> NDArray[np.int64]:
    """Start of the pane that holds each time; rounded towards the past, also before 1970."""
    return times // size_ms * size_ms


def window_start(time: int, size_ms: int) -> int:
    """Start of the window that holds `time`, a tuple's event time or the start of one of the window's panes."""
    return time // size_ms * size_ms
