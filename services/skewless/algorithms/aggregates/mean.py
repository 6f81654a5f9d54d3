"""The arithmetic mean of a group's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.aggregates.base import COUNT, SUM, Aggregate, PartialColumn, Results


class Mean(Aggregate):
    """Kept as sum and count, so that partial results merge; a number only in the end."""

    name: ClassVar[str] = "mean"
    columns: ClassVar[tuple[PartialColumn, ...]] = (SUM, COUNT)

    def result(self, partials: Mapping[str, NDArray[np.int64]]) -> Results:
        """Divide sum by count: the nearest double while the sum is below 2^53."""
        return partials[SUM.name] / partials[COUNT.name]
