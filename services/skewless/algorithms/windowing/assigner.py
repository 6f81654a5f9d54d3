"""Assigns event times to tumbling panes and windows [start, start + size), in integer milliseconds, aligned to 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def starts(times: NDArray[np.int64], size_ms: int) -> NDArray[np.int64]:
    """Return for each time the start of its window. Times before 1970 are also rounded towards the past."""
    return times // size_ms * size_ms
