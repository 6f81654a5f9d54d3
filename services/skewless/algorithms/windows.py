"""Tumbling event-time panes and windows: spans [start, start + size) of integer milliseconds, aligned to 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def starts(times: NDArray[np.int64], size_ms: int) -> NDArray[np.int64]:
    """Start of the span that holds each time; rounded towards the past, also before 1970."""
    return times // size_ms * size_ms
