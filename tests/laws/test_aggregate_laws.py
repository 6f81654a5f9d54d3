"""What holds for every aggregate in the registry: partials merge in any order and equal the plain definition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skewless.algorithms.aggregates import AGGREGATES, Aggregate, columns_of, create
from skewless.algorithms.partials import merge_partials, to_partials

Tuple: TypeAlias = tuple[str, int, int]
"""Key, time, value."""

PLAIN: dict[str, Callable[[list[int]], float]] = {
    "count": len,
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}
"""Each aggregate once more, as a function of the list of all values."""

PANE_MS = 100
BY = ["pane", "key"]
every_aggregate = pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=AGGREGATES)
tuples = st.tuples(
    st.sampled_from(["", "a", "b", "日本"]) | st.text(max_size=5),
    st.integers(-500, 500) | st.integers(-(2**47), 2**47),
    st.integers(-(2**40), 2**40),
)
streams = st.lists(tuples, max_size=60)


def batch(stream: Sequence[Tuple]) -> pa.RecordBatch:
    keys = pa.array([key for key, _, _ in stream], pa.string()).dictionary_encode()
    times = pa.array([time for _, time, _ in stream], pa.int64())
    values = pa.array([value for _, _, value in stream], pa.int64())
    return pa.record_batch({"key": keys, "time": times, "value": values})


def partials(aggregate: Aggregate, *streams: Sequence[Tuple]) -> pa.Table:
    return to_partials([batch(stream) for stream in streams], PANE_MS, aggregate.columns)


def rows(table: pa.Table) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = table.sort_by([(name, "ascending") for name in BY]).to_pylist()
    return listed


def test_every_aggregate_has_a_plain_definition() -> None:
    assert PLAIN.keys() == AGGREGATES.keys()


@every_aggregate
@given(stream=streams)
def test_results_equal_the_plain_definition(aggregate: Aggregate, stream: list[Tuple]) -> None:
    groups: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for key, time, value in stream:
        groups[time // PANE_MS * PANE_MS, key].append(value)
    table = partials(aggregate, stream)
    columns: dict[str, NDArray[np.int64]] = {column.name: table[column.name].to_numpy() for column in aggregate.columns}
    results = aggregate.result(columns).tolist()
    by_group = dict(zip(zip(table["pane"].to_pylist(), table["key"].to_pylist(), strict=True), results, strict=True))
    assert len(table) == len(by_group)
    assert by_group == {group: PLAIN[aggregate.name](values) for group, values in groups.items()}


@every_aggregate
@given(stream=streams, data=st.data())
def test_the_cut_into_batches_changes_nothing(aggregate: Aggregate, stream: list[Tuple], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = rows(partials(aggregate, stream))
    assert rows(partials(aggregate, *pieces)) == whole
    merged = merge_partials([partials(aggregate, piece) for piece in pieces], BY, aggregate.columns)
    assert rows(merged) == whole


@every_aggregate
@given(stream=streams)
def test_a_batch_equals_its_tuples_merged_one_by_one(aggregate: Aggregate, stream: list[Tuple]) -> None:
    folded = partials(aggregate)
    for one in stream:
        folded = merge_partials([folded, partials(aggregate, [one])], BY, aggregate.columns)
    assert rows(folded) == rows(partials(aggregate, stream))


@every_aggregate
@given(left=streams, right=streams)
def test_merging_is_commutative(aggregate: Aggregate, left: list[Tuple], right: list[Tuple]) -> None:
    one, other = partials(aggregate, left), partials(aggregate, right)
    forth = merge_partials([one, other], BY, aggregate.columns)
    assert rows(forth) == rows(merge_partials([other, one], BY, aggregate.columns))


@every_aggregate
@given(left=streams, middle=streams, right=streams)
def test_merging_is_associative(
    aggregate: Aggregate, left: list[Tuple], middle: list[Tuple], right: list[Tuple]
) -> None:
    first, second, third = (partials(aggregate, stream) for stream in (left, middle, right))

    def merge(one: pa.Table, other: pa.Table) -> pa.Table:
        return merge_partials([one, other], BY, aggregate.columns)

    assert rows(merge(merge(first, second), third)) == rows(merge(first, merge(second, third)))


@given(stream=streams)
def test_aggregates_side_by_side_give_what_each_gives_alone(stream: list[Tuple]) -> None:
    together = to_partials([batch(stream)], PANE_MS, columns_of(list(AGGREGATES.values())))
    for aggregate in (create(name) for name in AGGREGATES):
        assert rows(together.select([*BY, *(column.name for column in aggregate.columns)])) == rows(
            partials(aggregate, stream)
        )
