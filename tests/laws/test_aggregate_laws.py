"""Laws of every aggregate: partials merge in any order and equal the plain definition.

The aggregates are those of the registry, and aggregates of a package with binary partials.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.aggregates import ADDED, digits_of, newest_of
from skewless.algorithms import int128
from skewless.algorithms.aggregates import (
    AGGREGATES,
    Aggregate,
    Partials,
    as_arrow,
    as_python,
    as_result_array,
    columns_of,
)
from skewless.algorithms.keyed_table import KeyedTable
from skewless.algorithms.partials import merge_partials, to_partials

Tuple: TypeAlias = tuple[str, int, int]
"""Key, time, value."""


def stddev_of(values: Sequence[int | Fraction]) -> float | None:
    """Return the standard deviation, computed with 200 digits and rounded once."""
    if len(values) < 2:
        return None
    mean = Fraction(sum(values), len(values))
    variance = Fraction(sum((value - mean) ** 2 for value in values), len(values) - 1)
    exact = Context(prec=200)
    return float(exact.sqrt(exact.divide(Decimal(variance.numerator), Decimal(variance.denominator))))


PLAIN: dict[str, Callable[[list[int], list[int]], Any]] = {
    "count": lambda _times, values: len(values),
    "sum": lambda _times, values: sum(values),
    "mean": lambda _times, values: sum(values) / len(values),
    "min": lambda _times, values: min(values),
    "max": lambda _times, values: max(values),
    "first": lambda times, values: min(zip(times, values, strict=True))[1],
    "last": lambda times, values: max(zip(times, values, strict=True))[1],
    "largest": lambda _times, values: sorted(values, reverse=True)[:10],
    "smallest": lambda _times, values: sorted(values)[:10],
    "stddev": lambda _times, values: stddev_of(values),
    "distinct": lambda _times, values: len(set(values)),
    "quantile": lambda _times, values: sorted(values)[(len(values) - 1) // 2] / 1,
    "digits": lambda _times, values: digits_of(values),
    "newest": lambda times, values: newest_of(zip(times, values, strict=True)),
}
"""Plain definition of each aggregate: a function of the times and the values of all tuples."""

TESTED = {aggregate.name: aggregate for aggregate in (*AGGREGATES.values(), *ADDED)}
PANE_MS = 100
BY = ["pane", "key"]
every_aggregate = pytest.mark.parametrize("aggregate", TESTED.values(), ids=TESTED)
tuples = st.tuples(
    st.sampled_from(["", "a", "b", "日本"]) | st.text(max_size=5),
    st.integers(-500, 500) | st.integers(-(2**47), 2**47),
    st.integers(-(2**40), 2**40) | st.integers(-(2**63) + 1, 2**63 - 1),
)
streams = st.lists(tuples, max_size=60)
short_streams = st.lists(tuples, max_size=20)


def batch(stream: Sequence[Tuple]) -> pa.RecordBatch:
    keys = pa.array([key for key, _, _ in stream], pa.string()).dictionary_encode()
    times = pa.array([time for _, time, _ in stream], pa.int64())
    values = pa.array([value for _, _, value in stream], pa.int64())
    return pa.record_batch({"key": keys, "time": times, "value": values})


def partials(aggregate: Aggregate, *streams: Sequence[Tuple]) -> pa.Table:
    return to_partials([batch(stream) for stream in streams], PANE_MS, aggregate.columns)


def stored(aggregate: Aggregate, table: pa.Table) -> Partials:
    return {column.name: column.from_arrow(table[column.name]) for column in aggregate.columns}


def rows(table: pa.Table) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = table.sort_by([(name, "ascending") for name in BY]).to_pylist()
    return listed


def test_aggregate_registry_each_entry_has_a_reference_definition() -> None:
    assert PLAIN.keys() == TESTED.keys()


@every_aggregate
@given(stream=streams)
def test_aggregate_over_any_stream_equals_its_reference_definition(aggregate: Aggregate, stream: list[Tuple]) -> None:
    groups: defaultdict[tuple[int, str], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for key, time, value in stream:
        times, values = groups[time // PANE_MS * PANE_MS, key]
        times.append(time)
        values.append(value)
    table = partials(aggregate, stream)
    results = as_python(aggregate.present(stored(aggregate, table), 0))
    by_group = dict(zip(zip(table["pane"].to_pylist(), table["key"].to_pylist(), strict=True), results, strict=True))
    assert len(table) == len(by_group)
    assert by_group == {group: PLAIN[aggregate.name](*columns) for group, columns in groups.items()}
    assert (
        as_result_array(aggregate.present(stored(aggregate, table), 0), aggregate.result_type(0)).to_pylist() == results
    )


@given(
    values=st.lists(st.integers(-(10**6), 10**6) | st.integers(-(2**63) + 1, 2**63 - 1), min_size=1, max_size=20),
    repeated=st.integers(1, 2**33),
    decimals=st.integers(0, 9),
)
def test_mean_and_stddev_are_the_nearest_doubles(values: list[int], repeated: int, decimals: int) -> None:
    mean, stddev = AGGREGATES["mean"], AGGREGATES["stddev"]
    table = partials(stddev, [("a", 0, value) for value in values])
    exact = [Fraction(value, 10**decimals) for value in values]
    assert as_python(stddev.present(stored(stddev, table), decimals)) == [stddev_of(exact)]
    many = {"sum": int128.full(1, sum(values) * repeated), "count": np.array([len(values) * repeated])}
    for columns in (stored(mean, table), many):
        assert as_python(mean.present(columns, decimals)) == [float(sum(exact) / len(exact))]


@every_aggregate
@given(stream=streams, data=st.data())
def test_aggregate_stream_split_into_batches_gives_the_same_result(
    aggregate: Aggregate, stream: list[Tuple], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = rows(partials(aggregate, stream))
    assert rows(partials(aggregate, *pieces)) == whole
    merged = merge_partials([partials(aggregate, piece) for piece in pieces], BY, aggregate.columns)
    assert rows(merged) == whole


@every_aggregate
@given(stream=short_streams)
def test_aggregate_batch_equals_its_tuples_merged_one_by_one(aggregate: Aggregate, stream: list[Tuple]) -> None:
    folded = partials(aggregate)
    for one in stream:
        folded = merge_partials([folded, partials(aggregate, [one])], BY, aggregate.columns)
    assert rows(folded) == rows(partials(aggregate, stream))


@every_aggregate
@given(left=streams, right=streams)
def test_aggregate_merge_is_commutative(aggregate: Aggregate, left: list[Tuple], right: list[Tuple]) -> None:
    one, other = partials(aggregate, left), partials(aggregate, right)
    forth = merge_partials([one, other], BY, aggregate.columns)
    assert rows(forth) == rows(merge_partials([other, one], BY, aggregate.columns))


@every_aggregate
@given(left=streams, middle=streams, right=streams)
def test_aggregate_merge_is_associative(
    aggregate: Aggregate, left: list[Tuple], middle: list[Tuple], right: list[Tuple]
) -> None:
    first, second, third = (partials(aggregate, stream) for stream in (left, middle, right))

    def merge(one: pa.Table, other: pa.Table) -> pa.Table:
        return merge_partials([one, other], BY, aggregate.columns)

    assert rows(merge(merge(first, second), third)) == rows(merge(first, merge(second, third)))


@every_aggregate
@given(stream=streams, data=st.data())
def test_table_that_merges_batches_has_the_partials_of_the_whole(
    aggregate: Aggregate, stream: list[Tuple], data: st.DataObject
) -> None:
    pieces = [stream[start::3] for start in data.draw(st.permutations(range(3)))]
    table = KeyedTable(aggregate.columns)
    for piece in pieces:
        merged = merge_partials([partials(aggregate, piece)], ["key"], aggregate.columns)
        table.merge(table.rows_of(merged["key"]), stored(aggregate, merged))
    whole = merge_partials([partials(aggregate, stream)], ["key"], aggregate.columns).sort_by("key").to_pydict()
    partials_of = table.data(slice(len(table)))
    columns = [as_arrow(column, partials_of[column.name]).to_pylist() for column in aggregate.columns]
    rows = sorted(zip(table.keys(np.arange(len(table))).to_pylist(), *columns, strict=True))
    assert rows == list(zip(*whole.values(), strict=True))


@given(stream=streams)
def test_aggregates_computed_together_equal_each_computed_alone(stream: list[Tuple]) -> None:
    together = to_partials([batch(stream)], PANE_MS, columns_of(TESTED.values()))
    for aggregate in TESTED.values():
        assert rows(together.select([*BY, *(column.name for column in aggregate.columns)])) == rows(
            partials(aggregate, stream)
        )
