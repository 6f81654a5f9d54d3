"""Columns of partial results: how a group of tuples becomes a partial, and how partials merge.

Partials are numpy arrays with one row per group: numbers of an `IntegerColumn` or `Int128Column`, `bytes` objects of a
`BinaryColumn`. In records they are Arrow columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms import int128
from skewless.algorithms.int128 import Int128
from skewless.algorithms.value_type import VALUE

Groups: TypeAlias = NDArray[np.int64]
"""Index of the group of each element. Groups are numbered from 0, and none is empty."""
Binary: TypeAlias = NDArray[np.object_]
"""An array of `bytes`."""
Partials: TypeAlias = Mapping[str, NDArray[Any]]
"""Partials by the name of their column, one element per group."""

_INT64 = np.iinfo(np.int64)
_MERGES: Mapping[str, tuple[np.ufunc, int]] = {
    "sum": (np.add, 0),
    "min": (np.minimum, _INT64.max),
    "max": (np.maximum, _INT64.min),
}
"""Operation of each kind of merge, and its neutral value."""
_NEUTRAL = {"sum": 0, "min": 2**121, "max": -(2**121)}
"""Neutral value of each kind of merge of 128-bit integers. They fit into the 38 digits of Arrow's decimals."""
_SIGN_BIT = np.int64(-(2**63))
_LOW_HALF = np.int64(2**32 - 1)


@dataclass(frozen=True, slots=True)
class Tuples:
    """Columns of tuples. All have the same length."""

    keys: pa.DictionaryArray
    values: Any
    """The value of a column: an array of fixed-point numbers (int64: the number times 10 to the power of its decimals),
    or a pyarrow.DictionaryArray of texts."""
    times: NDArray[np.int64]
    """Event times in ms."""


@dataclass(frozen=True)
class IntegerColumn:
    """A column of 64-bit integers, which merge by sum, minimum or maximum."""

    name: str
    contribution: Callable[[Tuples], NDArray[np.int64] | int]
    """Returns the number of each tuple, or one number for all of them."""
    merge: Literal["sum", "min", "max"]
    """Name of the operation. Arrow and Spark have functions of the same names."""
    value: str | None = VALUE
    """Name of the value that the column is computed from. None: the column counts tuples."""
    optional: bool = False
    """Whether only the tuples that have this value contribute. Groups without it have the neutral value."""
    type: ClassVar[pa.DataType] = pa.int64()

    def prepare(self, tuples: Tuples, group_of: Groups, groups: int) -> NDArray[np.int64]:
        """Return the partial of each group of tuples."""
        partials = self.unset(groups)
        _MERGES[self.merge][0].at(partials, group_of, self.contribution(tuples))
        return partials

    def unset(self, rows: int) -> NDArray[np.int64]:
        """Return rows without a partial: the neutral value."""
        return np.full(rows, _MERGES[self.merge][1], dtype=np.int64)

    def combine(self, stored: NDArray[np.int64], added: NDArray[np.int64]) -> NDArray[np.int64]:
        """Merge two arrays element by element."""
        combined: NDArray[np.int64] = _MERGES[self.merge][0](stored, added)
        return combined

    def from_arrow(self, partials: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the partials of an Arrow array."""
        numbers: NDArray[np.int64] = partials.to_numpy()
        return numbers


@dataclass(frozen=True)
class Int128Column:
    """A column of 128-bit integers (see `int128`), which merge by sum, minimum or maximum.

    A sum of 64-bit integers never overflows. Minimum and maximum are of 128-bit integers of at most 120 bits.
    """

    name: str
    contribution: Callable[[Tuples], NDArray[np.int64]]
    """Returns the number of each tuple: a 64-bit integer for a sum, otherwise a 128-bit integer."""
    merge: Literal["sum", "min", "max"] = "sum"
    """Name of the operation. Arrow and Spark have functions of the same names."""
    value: str | None = VALUE
    optional: bool = False
    """As in `IntegerColumn`."""
    type: ClassVar[pa.DataType] = int128.TYPE

    def prepare(self, tuples: Tuples, group_of: Groups, groups: int) -> Int128:
        """Return the partial of each group of tuples."""
        numbers = self.contribution(tuples)
        if self.merge != "sum":
            partials = self.unset(groups)
            _set_extremes(partials, numbers, group_of, self.merge == "min")
            return partials
        largest = max(int(numbers.max()), -int(numbers.min())) if len(numbers) else 0
        if largest * len(numbers) <= _INT64.max:
            return int128.widen(_sums(numbers, group_of, groups))
        # Sums of 32-bit halves fit into 64 bits.
        low = int128.widen(_sums(numbers & _LOW_HALF, group_of, groups))
        high = _sums(numbers >> 32, group_of, groups)
        shifted = np.stack((high << 32, high >> 32), axis=1)
        return int128.add(low, shifted)

    def unset(self, rows: int) -> Int128:
        """Return rows without a partial: the neutral value."""
        return int128.full(rows, _NEUTRAL[self.merge])

    def combine(self, stored: Int128, added: Int128) -> Int128:
        """Merge two arrays row by row."""
        if self.merge == "sum":
            return int128.add(stored, added)
        is_added_less = int128.is_less(added, stored)
        is_added = is_added_less if self.merge == "min" else ~is_added_less
        return np.where(is_added[:, np.newaxis], added, stored)

    def from_arrow(self, partials: pa.Array | pa.ChunkedArray) -> Int128:
        """Return the partials of an Arrow array."""
        return int128.from_arrow(partials)


@dataclass(frozen=True)
class BinaryColumn:
    """A column of `bytes`, for what does not fit into a number: a set, a sketch, a value with its time.

    `prepare` receives tuples, the group of each tuple and the number of groups, and returns the partial of each group.
    `merge` receives partials, the group of each partial and the number of groups, and returns the merged partial of
    each group. It must be associative and commutative: the result must not depend on the order of the partials, also
    not in its bytes. Both are functions of a module, or frozen dataclasses that can be called: Spark sends them to its
    tasks, and equal columns are one column.
    """

    name: str
    prepare: Callable[[Tuples, Groups, int], Binary]
    merge: Callable[[Binary, Groups, int], Binary]
    value: str | None = VALUE
    optional: bool = False
    """As in `IntegerColumn`. The partial of a group without the value is None, and the two functions do not see it."""
    type: ClassVar[pa.DataType] = pa.binary()

    def unset(self, rows: int) -> Binary:
        """Return rows without a partial: None."""
        return np.full(rows, None, dtype=np.object_)

    def combine(self, stored: Binary, added: Binary) -> Binary:
        """Merge two arrays element by element. Elements may be None."""
        combined = added.copy()
        has_stored, has_added = (_are_present(partials) for partials in (stored, added))
        combined[~has_added] = stored[~has_added]
        both = np.flatnonzero(has_stored & has_added)
        if len(both):
            group_of = np.arange(len(both))
            partials = np.concatenate((stored[both], added[both]))
            combined[both] = self.merge(partials, np.concatenate((group_of, group_of)), len(both))
        return combined

    def merge_lists(self, lists: pa.ListArray) -> Binary:
        """Merge the partials of each list. The result is None for a list without partials."""
        partials = self.from_arrow(lists.flatten())
        group_of = lists.value_parent_indices().to_numpy().astype(np.int64)
        if not self.optional:
            return self.merge(partials, group_of, len(lists))
        valid = np.flatnonzero(_are_present(partials))
        return in_present_groups(
            self, len(lists), group_of[valid], lambda groups, size: self.merge(partials[valid], groups, size)
        )

    def from_arrow(self, partials: pa.Array | pa.ChunkedArray) -> Binary:
        """Return the partials of an Arrow array."""
        objects: Binary = partials.to_numpy(zero_copy_only=False) if len(partials) else self.unset(0)
        return objects


PartialColumn: TypeAlias = IntegerColumn | Int128Column | BinaryColumn
"""A column of partial results. Columns of the same name are the same column."""


def in_present_groups(
    column: PartialColumn, groups: int, group_of: Groups, compute: Callable[[Groups, int], NDArray[Any]]
) -> NDArray[Any]:
    """Return partials that `compute` returns for the groups that occur in `group_of`. The others have none.

    `compute` receives groups that are numbered without gaps, and their number.
    """
    partials = column.unset(groups)
    present, dense = np.unique(group_of, return_inverse=True)
    if len(present):
        partials[present] = compute(dense, len(present))
    return partials


def counting_column(name: str) -> IntegerColumn:
    """Return a column that counts: each tuple contributes 1, and partials are added."""
    return IntegerColumn(name, _one, "sum", value=None)


def value_of(tuples: Tuples) -> NDArray[np.int64]:
    """Return the value of each tuple."""
    values: NDArray[np.int64] = tuples.values
    return values


def _one(_tuples: Tuples) -> int:
    return 1


def _are_present(partials: Binary) -> NDArray[np.bool_]:
    return np.array([partial is not None for partial in partials.tolist()], dtype=np.bool_)


def as_objects(partials: Iterable[bytes]) -> Binary:
    """Return partials as an array."""
    listed = list(partials)
    array = np.empty(len(listed), dtype=np.object_)
    array[:] = listed
    return array


def merge_groups(partials: Binary, group_of: Groups, groups: int, merge: Callable[[Sequence[bytes]], bytes]) -> Binary:
    """Return the merged partial of each group. `group_of` has the group of each partial."""
    by_group: list[list[bytes]] = [[] for _ in range(groups)]
    for group, partial in zip(group_of.tolist(), partials.tolist(), strict=True):
        by_group[group].append(partial)
    return as_objects(map(merge, by_group))


def as_arrow(column: PartialColumn, partials: NDArray[Any]) -> pa.Array:
    """Return partials of a column as an Arrow array. Integers share their memory."""
    return int128.to_arrow(partials) if isinstance(column, Int128Column) else pa.array(partials, column.type)


def _set_extremes(partials: Int128, numbers: Int128, group_of: Groups, minimum: bool) -> None:  # noqa: FBT001
    """Replace the partials of groups by the smallest (or largest) number of each group."""
    replace_at = np.minimum.at if minimum else np.maximum.at
    replace_at(partials[:, 1], group_of, numbers[:, 1])
    rows = np.flatnonzero(numbers[:, 1] == partials[group_of, 1])
    # Adding 2^63 makes the order of the low words that of unsigned numbers.
    low = np.full(len(partials), _INT64.max if minimum else _INT64.min)
    replace_at(low, group_of[rows], numbers[rows, 0] ^ _SIGN_BIT)
    partials[group_of, 0] = low[group_of] ^ _SIGN_BIT


def _sums(numbers: NDArray[np.int64], group_of: Groups, groups: int) -> NDArray[np.int64]:
    sums = np.zeros(groups, dtype=np.int64)
    np.add.at(sums, group_of, numbers)
    return sums
