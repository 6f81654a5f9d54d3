"""The n largest values in a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from skewless.algorithms.aggregates.base import Aggregate, Results
from skewless.algorithms.aggregates.fixed_point_results import FixedPointResults
from skewless.algorithms.aggregates.partial_column import (
    Binary,
    BinaryColumn,
    Groups,
    PartialColumn,
    Partials,
    Tuples,
    as_objects,
)
from skewless.settings_base import SettingsModel

MAX_N = 100


class ExtremesArguments(SettingsModel):
    """Settings of `largest` and `smallest`."""

    n: int = Field(10, ge=1, le=MAX_N, description="Number of values, at most. Each takes 8 bytes per key and window.")


@dataclass(frozen=True)
class PrepareExtremes:
    """Returns the `n` largest (or smallest) values of each group as bytes: 64-bit integers, the most extreme first."""

    n: int
    smallest: bool

    def __call__(self, tuples: Tuples, group_of: Groups, groups: int) -> Binary:
        """Return the partial of each group of tuples."""
        return self.of_values(tuples.values, group_of, groups)

    def of_values(self, values: NDArray[np.int64], group_of: Groups, groups: int) -> Binary:
        """Return the partial of each group of values."""
        # The complement reverses the order of all 64-bit integers.
        order = np.lexsort((values if self.smallest else ~values, group_of))
        ends = np.cumsum(np.bincount(group_of, minlength=groups))
        starts = np.concatenate(([0], ends))[:-1]
        return as_objects(
            values[order[start : min(start + self.n, end)]].astype("<i8").tobytes()
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        )


@dataclass(frozen=True)
class MergeExtremes:
    """Merges results of `PrepareExtremes`."""

    prepare: PrepareExtremes

    def __call__(self, partials: Binary, group_of: Groups, groups: int) -> Binary:
        """Return the merged partial of each group."""
        contents = partials.tolist()
        values = np.frombuffer(b"".join(contents), dtype="<i8").astype(np.int64)
        sizes = np.array([len(content) // 8 for content in contents], dtype=np.int64)
        return self.prepare.of_values(values, np.repeat(group_of, sizes), groups)


class Largest(Aggregate):
    """The `n` largest values as a list, the largest first. A value that occurs several times is listed as often."""

    name: ClassVar[str] = "largest"
    arguments: ClassVar[type[SettingsModel]] = ExtremesArguments
    smallest: ClassVar[bool] = False

    def __init__(self, n: int = 10) -> None:
        prepare = PrepareExtremes(n, self.smallest)
        self.columns: tuple[PartialColumn, ...] = (BinaryColumn(f"{self.name}_{n}", prepare, MergeExtremes(prepare)),)

    def with_arguments(self, arguments: ExtremesArguments) -> Sequence[Self]:
        """Return the aggregate for `n` values."""
        return (type(self)(arguments.n),)

    def result_type(self, decimals: int) -> pa.DataType:
        """Return the type of a list of numbers."""
        return pa.list_(super().result_type(decimals))

    def present(self, partials: Partials, decimals: int) -> Results:
        """Return the values of each group as a list."""
        contents = partials[self.columns[0].name].tolist()
        values = np.frombuffer(b"".join(contents), dtype="<i8").astype(np.int64)
        return FixedPointResults(
            values, decimals, np.cumsum([len(content) // 8 for content in contents], dtype=np.int64)
        )
