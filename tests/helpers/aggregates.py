"""Aggregates with binary partials, as a package adds them by entry points. No product code names them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from importlib.metadata import EntryPoint, EntryPoints
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from skewless import aggregate_registry
from skewless.algorithms.aggregates import (
    Aggregate,
    BinaryColumn,
    PartialColumn,
    Partials,
    ResultField,
    Results,
    Tuples,
    in_source_unit,
)
from skewless.algorithms.aggregates.partial_column import Binary, Groups
from skewless.algorithms.value_type import ValueType

_SIZE = 256


def _objects(partials: Iterable[bytes], groups: int) -> Binary:
    array = np.empty(groups, dtype=np.object_)
    array[:] = list(partials)
    return array


def _sets(members: NDArray[np.int64], group_of: Groups, groups: int) -> Binary:
    """Return the sorted distinct members of each group, one byte each."""
    pairs = np.unique(group_of * _SIZE + members)
    content = (pairs % _SIZE).astype(np.uint8).tobytes()
    ends = np.searchsorted(pairs, np.arange(groups + 1) * _SIZE).tolist()
    return _objects((content[start:end] for start, end in itertools.pairwise(ends)), groups)


def _last_digits(tuples: Tuples, group_of: Groups, groups: int) -> Binary:
    return _sets(np.abs(tuples.values) % 100, group_of, groups)


def _union(partials: Binary, group_of: Groups, groups: int) -> Binary:
    sets = partials.tolist()
    members = np.frombuffer(b"".join(sets), dtype=np.uint8).astype(np.int64)
    return _sets(members, np.repeat(group_of, list(map(len, sets))), groups)


class Digits(Aggregate):
    """Distinct last two digits of the values, ascending."""

    name: ClassVar[str] = "digits"
    columns: tuple[PartialColumn, ...] = (BinaryColumn("digit_set", _last_digits, _union),)

    def result_type(self, decimals: int) -> pa.DataType:
        return pa.list_(pa.int64())

    def present(self, partials: Partials, decimals: int) -> Results:
        return [list(members) for members in partials["digit_set"].tolist()]


_TIME_AND_VALUE = ">qq"


def _newest(tuples: Tuples, group_of: Groups, groups: int) -> Binary:
    newest = [(-(2**63), 0)] * groups
    rows = zip(group_of.tolist(), tuples.times.tolist(), tuples.values.tolist(), strict=True)
    for group, time, value in rows:
        newest[group] = max(newest[group], (time, value))
    return _objects((struct.pack(_TIME_AND_VALUE, *row) for row in newest), groups)


def _merged(partials: Binary, group_of: Groups, groups: int) -> Binary:
    newest = [(-(2**63), 0)] * groups
    for group, partial in zip(group_of.tolist(), partials.tolist(), strict=True):
        time, value = struct.unpack(_TIME_AND_VALUE, partial)
        newest[group] = max(newest[group], (time, value))
    return _objects((struct.pack(_TIME_AND_VALUE, *row) for row in newest), groups)


class Newest(Aggregate):
    """Value of the newest tuple; of several with the same time, the largest value."""

    name: ClassVar[str] = "newest"
    columns: tuple[PartialColumn, ...] = (BinaryColumn("newest_value", _newest, _merged),)

    def present(self, partials: Partials, decimals: int) -> Results:
        values = [struct.unpack(_TIME_AND_VALUE, partial)[1] for partial in partials["newest_value"].tolist()]
        return in_source_unit(np.array(values, dtype=np.int64), decimals)


def results(*names: str) -> tuple[ResultField, ...]:
    """Return the results of aggregates of the value named `value`."""
    return aggregate_registry.results_of(names, (ValueType(),))


DIGITS = Digits()
NEWEST = Newest()
ADDED = (DIGITS, NEWEST)


def digits_of(values: Iterable[int]) -> list[int]:
    """Compute the result of DIGITS from all values."""
    return sorted({abs(value) % 100 for value in values})


def newest_of(tuples: Iterable[tuple[int, int]]) -> int:
    """Compute the result of NEWEST from (time, value) of all tuples."""
    return max(tuples)[1]


def install(monkeypatch: pytest.MonkeyPatch, *targets: tuple[str, str]) -> None:
    """Register aggregates as installed packages do: (name, `module:object`). The default is this module's."""
    rows = targets or tuple((aggregate.name, f"{__name__}:{aggregate.name.upper()}") for aggregate in ADDED)
    added = EntryPoints([EntryPoint(name, target, "skewless.aggregates") for name, target in rows])
    monkeypatch.setattr(aggregate_registry, "entry_points", lambda group: added.select(group=group))
