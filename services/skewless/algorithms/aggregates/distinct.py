"""Number of distinct values in a group: exact for small sets, otherwise estimated with HyperLogLog.

A small set is stored as the sorted 64-bit hashes of its values. A larger one is stored as the registers of HyperLogLog.
Both depend on the set only, not on the order or the division of the values, so that stream and batch give the same
number. For the same reason the estimate is computed from the registers: O. Ertl, "New cardinality estimation algorithms
for HyperLogLog sketches" (2017), algorithm 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from skewless.algorithms.aggregates.base import Aggregate, Results
from skewless.algorithms.aggregates.distinct_pairs import EXACT_LIMIT, segments, sorted_pairs
from skewless.algorithms.aggregates.partial_column import (
    Binary,
    BinaryColumn,
    Groups,
    PartialColumn,
    Partials,
    Tuples,
    as_objects,
    merge_groups,
)
from skewless.algorithms.murmur import hashes_of_column
from skewless.algorithms.value_type import Kind
from skewless.settings_base import SettingsModel

DEFAULT_PRECISION = 12
SEED = 71
"""Seed of the hashes of texts. It must never change, because state contains the hashes."""
_SET, _REGISTERS = b"s", b"r"
"""First byte of a partial: sorted hashes (8 bytes each), or registers (1 byte each)."""


class DistinctArguments(SettingsModel):
    """Settings of `distinct`."""

    precision: int = Field(
        DEFAULT_PRECISION,
        ge=10,
        le=16,
        description="2 to the power of this is the number of registers, and of bytes per key and window with more than "
        "256 distinct values. The standard error is 1.04 divided by the square root of the number of registers.",
    )


@dataclass(frozen=True)
class PrepareDistinct:
    """Returns the sketch of each group of tuples."""

    precision: int

    def __call__(self, tuples: Tuples, group_of: Groups, groups: int) -> Binary:
        """Return the partial of each group."""
        return self.of_hashes(_hashes(tuples.values), group_of, groups)

    def of_hashes(self, hashes: NDArray[np.int64], group_of: Groups, groups: int) -> Binary:
        """Return the partial of each group of hashes."""
        pair_groups, distinct, _ = sorted_pairs(group_of, hashes)
        return as_objects(self.of_set(distinct[start:end]) for start, end in segments(pair_groups, groups))

    def of_set(self, hashes: NDArray[np.int64]) -> bytes:
        """Return the partial of a group with these distinct hashes, which are sorted."""
        if len(hashes) <= EXACT_LIMIT:
            return _SET + hashes.astype("<i8").tobytes()
        registers = np.zeros(2**self.precision, dtype=np.uint8)
        _update(registers, hashes, self.precision)
        return _REGISTERS + registers.tobytes()


@dataclass(frozen=True)
class MergeDistinct:
    """Merges results of `PrepareDistinct`."""

    prepare: PrepareDistinct

    def __call__(self, partials: Binary, group_of: Groups, groups: int) -> Binary:
        """Return the merged partial of each group."""
        return merge_groups(partials, group_of, groups, self.merged)

    def merged(self, partials: Sequence[bytes]) -> bytes:
        """Return the merged partial of a group."""
        if len(partials) == 1:
            return partials[0]
        joined = b"".join(partial[1:] for partial in partials if partial[:1] == _SET)
        hashes = np.unique(np.frombuffer(joined, dtype="<i8").astype(np.int64))
        sketches = [np.frombuffer(partial, np.uint8, offset=1) for partial in partials if partial[:1] == _REGISTERS]
        if not sketches:
            return self.prepare.of_set(hashes)
        registers = np.maximum.reduce(sketches)
        if len(hashes):
            _update(registers, hashes, self.prepare.precision)
        content: bytes = registers.tobytes()
        return _REGISTERS + content

    def with_hashes(self, partial: bytes, hashes: NDArray[np.int64]) -> bytes:
        """Return the partial of a group with more hashes, in any order, which may repeat."""
        if partial[:1] == _SET:
            return self.merged((partial, self.prepare.of_set(np.unique(hashes))))
        # Registers do not change when a hash repeats, and sorting the hashes would take most of the time.
        registers = np.frombuffer(partial, np.uint8, offset=1).copy()
        _update(registers, hashes, self.prepare.precision)
        return _REGISTERS + registers.tobytes()


class Distinct(Aggregate):
    """Number of distinct values: exact up to 256 per key and window, otherwise an estimate (HyperLogLog)."""

    name: ClassVar[str] = "distinct"
    kinds: ClassVar[tuple[Kind, ...]] = ("number", "text")
    empty: ClassVar[int] = 0
    arguments: ClassVar[type[SettingsModel]] = DistinctArguments

    def __init__(self, precision: int = DEFAULT_PRECISION) -> None:
        prepare = PrepareDistinct(precision)
        self.columns: tuple[PartialColumn, ...] = (
            BinaryColumn(f"distinct_{precision}", prepare, MergeDistinct(prepare)),
        )

    def with_arguments(self, arguments: DistinctArguments) -> Sequence[Aggregate]:
        """Return the aggregate with this precision."""
        return (Distinct(arguments.precision),)

    def result_type(self, decimals: int) -> pa.DataType:  # noqa: ARG002 - not in the unit of the values
        """Return the type of an integer."""
        return pa.int64()

    def present(self, partials: Partials, decimals: int) -> Results:  # noqa: ARG002 - not in the unit of the values
        """Return the numbers of distinct values."""
        return [round(estimate(partial)) for partial in partials[self.columns[0].name].tolist()]


def estimate(partial: bytes) -> float:
    """Return the number of distinct values: exact for a set, otherwise estimated."""
    if partial[:1] == _SET:
        return (len(partial) - 1) // 8
    return _estimate(np.frombuffer(partial, np.uint8, offset=1))


def _hashes(values: NDArray[np.int64] | pa.DictionaryArray) -> NDArray[np.int64]:
    """Return 64-bit hashes of numbers or texts. Each text of the dictionary is hashed once."""
    if isinstance(values, pa.DictionaryArray):
        by_code = hashes_of_column(values.dictionary, SEED)
        return np.asarray(by_code[values.indices.to_numpy()])
    # The finalizer of splitmix64: a permutation of the 64-bit integers, so different numbers never collide.
    mixed = values.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: NDArray[np.int64] = (mixed ^ (mixed >> np.uint64(31))).view(np.int64)
    return hashes


def _update(registers: NDArray[np.uint8], hashes: NDArray[np.int64], precision: int) -> None:
    """Set each register to the largest rank of its hashes: the position of the first 1 after the index bits."""
    words = hashes.view(np.uint64)
    rest = words & np.uint64(2 ** (64 - precision) - 1)
    # Without the bit after the first 1, the number is not rounded up to the next exponent as a float.
    _, lengths = np.frexp(rest & ~(rest >> np.uint64(1)))
    ranks = (65 - precision - lengths).astype(np.uint8)
    np.maximum.at(registers, (words >> np.uint64(64 - precision)).view(np.int64), ranks)


def _estimate(registers: NDArray[np.uint8]) -> float:
    """Return the estimated number of distinct values (Ertl, algorithm 6)."""
    size = len(registers)
    largest = 65 - (size.bit_length() - 1)
    counts = np.bincount(registers, minlength=largest + 1).tolist()
    total = size * _tau(1 - counts[largest] / size)
    for rank in range(largest - 1, 0, -1):
        total = 0.5 * (total + counts[rank])
    total += size * _sigma(counts[0] / size)
    return size / (2 * math.log(2)) * size / total


def _sigma(share: float) -> float:
    if share == 1:
        return math.inf
    power, total, previous = 1.0, share, -1.0
    while total != previous:
        share, previous = share * share, total
        total += share * power
        power *= 2
    return total


def _tau(share: float) -> float:
    if share in (0, 1):
        return 0
    power, total, previous = 1.0, 1 - share, -1.0
    while total != previous:
        share, previous = math.sqrt(share), total
        power /= 2
        total -= (1 - share) ** 2 * power
    return total / 3
