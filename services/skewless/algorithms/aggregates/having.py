"""Selects the results of a window by conditions on their numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.aggregates.partial_column import Partials
from skewless.algorithms.aggregates.result_field import ResultField

OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
}


@dataclass(frozen=True, slots=True)
class ResultCondition:
    """A comparison of a result with a number. A result without a value (null) does not match."""

    result: ResultField
    operator: str
    """A name of OPERATORS."""
    bound: float

    def matches(self, partials: Partials) -> NDArray[np.bool_]:
        """Return for each group whether its result matches."""
        compare, bound = OPERATORS[self.operator], _decimal(self.bound)
        results = self.result.to_python(partials)
        return np.array([number is not None and compare(_decimal(number), bound) for number in results], dtype=np.bool_)


def _decimal(number: float | Decimal) -> Decimal:
    """Return a number as it is written. Otherwise a result of 0.1 would be less than a bound of 0.1."""
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def is_comparable(result: ResultField) -> bool:
    """Return whether a result is a number."""
    result_type = result.result_type
    return bool(pa.types.is_decimal(result_type) or pa.types.is_int64(result_type) or pa.types.is_float64(result_type))


def selected(conditions: Sequence[ResultCondition], partials: Partials) -> NDArray[np.bool_]:
    """Return for each group whether its results match all conditions. There must be at least one condition."""
    matching: NDArray[np.bool_] = np.logical_and.reduce([condition.matches(partials) for condition in conditions])
    return matching
