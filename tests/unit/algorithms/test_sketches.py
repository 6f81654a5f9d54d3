"""Sketches of distinct values and of quantiles: exact for small sets, and within their bounds for large ones."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from helpers.sketches import result_of_groups
from helpers.tiers import thorough_except
from skewless.algorithms.aggregates.distinct import Distinct, MergeDistinct, PrepareDistinct
from skewless.algorithms.aggregates.distinct_pairs import EXACT_LIMIT
from skewless.algorithms.aggregates.partial_column import Binary, BinaryColumn, Tuples, as_objects
from skewless.algorithms.aggregates.quantile import ERROR_STEPS, Quantile, bucket_starts
from skewless.algorithms.aggregates.result_field import ResultField
from skewless.algorithms.partials import to_partials
from skewless.algorithms.value_type import ValueType


@pytest.mark.parametrize("precision", thorough_except([12], [10, 12, 16]))
def test_distinct_of_many_groups_is_within_three_standard_errors(precision: int) -> None:
    # Many groups, because a single one outside the bounds is 0.1 % of a thousand.
    groups, sizes = 1_000, np.geomspace(1, 4_000, 1_000).astype(np.int64)
    random = np.random.default_rng(7)
    keys = np.repeat(np.arange(groups), sizes)
    texts = pa.array([f"user-{number}" for number in random.permutation(len(keys)).tolist()]).dictionary_encode()
    field = ResultField("users", Distinct(precision), ValueType("value", "text"))
    errors = np.abs(np.array(result_of_groups(field, keys, texts)) / sizes - 1)
    assert np.all(errors[sizes <= EXACT_LIMIT] == 0)
    assert np.mean(errors <= 3 * 1.04 / math.sqrt(2**precision)) >= 0.997


@pytest.mark.parametrize("added", [3, EXACT_LIMIT, EXACT_LIMIT + 1, 5_000])
@pytest.mark.parametrize("first", [0, 3, EXACT_LIMIT, 5_000])
def test_distinct_with_more_hashes_that_repeat_in_any_order_is_the_partial_of_the_set(first: int, added: int) -> None:
    random = np.random.default_rng(first + added)
    before, more = (random.integers(-(2**63), 2**63, count, dtype=np.int64) for count in (first, added))
    more[: added // 2] = np.resize(before, added // 2) if first else more[: added // 2]
    merge = MergeDistinct(PrepareDistinct(12))
    partial = merge.prepare.of_set(np.unique(before))
    repeated = random.permutation(np.concatenate([more, more[: added // 3]]))
    assert merge.with_hashes(partial, repeated) == merge.prepare.of_set(np.unique(np.concatenate([before, more])))


@pytest.mark.parametrize("error", [0.001, 0.01, 0.1])
def test_quantiles_of_large_groups_are_within_the_relative_error_of_the_value_at_their_rank(error: float) -> None:
    random = np.random.default_rng(8)
    values = np.concatenate([random.lognormal(10, 3, 4_000), -random.lognormal(5, 2, 1_000), np.zeros(3)])
    numbers = values.astype(np.int64)
    keys = np.zeros(len(numbers), dtype=np.int64)
    ordered = np.sort(numbers).tolist()
    for at in (0, 0.01, 0.2, 0.5, 0.9, 0.99, 0.999, 1):
        field = ResultField("q", Quantile(at, round(error * ERROR_STEPS)), ValueType())
        (found,) = result_of_groups(field, keys, pa.array(numbers))
        expected = ordered[max(1, math.ceil(round(at * len(ordered), 6))) - 1]
        assert abs(found - expected) <= error * abs(expected) * (1 + 1e-12), at


@pytest.mark.parametrize(
    ("at", "name"),
    [
        (0.5, "v_p50"),
        (0.999, "v_p99_9"),
        (0.0, "v_p0"),
        (1.0, "v_p100"),
        (0.123456789, "v_p12_3456789"),
        (1e-7, "v_p0_00001"),
    ],
)
def test_quantile_has_a_name_without_an_exponent(at: float, name: str) -> None:
    assert Quantile(at, 100).result_name("v") == name


def test_quantiles_up_to_256_distinct_values_are_exact() -> None:
    numbers = np.tile(np.arange(-100, 156), 50)
    keys = np.zeros(len(numbers), dtype=np.int64)
    for at, expected in ((0, -1.0), (0.5, 0.27), (1, 1.55)):
        assert result_of_groups(ResultField("q", Quantile(at), ValueType(decimals=2)), keys, pa.array(numbers)) == [
            expected
        ]


@pytest.mark.parametrize("largest", [2_000, 2**63 - 1])
def test_quantile_partials_of_few_and_of_many_values_merge_to_the_partial_of_all_tuples(largest: int) -> None:
    random = np.random.default_rng(10)
    (column,) = Quantile().columns
    assert isinstance(column, BinaryColumn)
    groups = random.permutation(np.repeat(np.arange(300), np.geomspace(1, 3_000, 300).astype(np.int64)))
    values = random.integers(-largest, largest, len(groups), endpoint=True)

    def prepared(rows: NDArray[np.intp]) -> tuple[NDArray[np.int64], Binary]:
        keys, times = pa.array(groups[rows]).dictionary_encode(), np.zeros(len(rows), np.int64)
        present, group_of = np.unique(groups[rows], return_inverse=True)
        return present, column.prepare(Tuples(keys, values[rows], times), group_of, len(present))

    pieces = random.choice(4, len(groups), p=(0.8, 0.15, 0.04, 0.01))
    group_of, partials = zip(*(prepared(np.flatnonzero(pieces == piece)) for piece in range(4)), strict=True)
    order = random.permutation(sum(map(len, partials)))
    merged = column.merge(np.concatenate(partials)[order], np.concatenate(group_of)[order], 300)
    assert {partial[:1] for partial in merged} == {b"v", b"b"}
    assert merged.tolist() == prepared(np.arange(len(groups)))[1].tolist()


def test_quantile_merge_of_many_large_partials_needs_little_memory() -> None:
    buckets, groups, pieces = 700, 256, 4
    (column,) = Quantile().columns
    assert isinstance(column, BinaryColumn)
    partial = b"b" + np.arange(1, buckets + 1).astype("<i8").tobytes() + np.ones(buckets, "<i8").tobytes()
    partials = as_objects([partial] * (groups * pieces))
    group_of = np.tile(np.arange(groups), pieces)
    tracemalloc.start()
    merged = column.merge(partials, group_of, groups)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    expected = partial[: 1 + 8 * buckets] + np.full(buckets, pieces, "<i8").tobytes()
    assert merged.tolist() == [expected] * groups
    assert peak - kept < 4 * 2**20  # the partials have 11 MB


@pytest.mark.parametrize("error", [10, 100, 1000])
def test_buckets_cover_all_integers_with_a_bounded_ratio(error: int) -> None:
    starts = [int(start) for start in bucket_starts(error)]
    assert starts[0] == 1
    for start, next_start in zip(starts, [*starts[1:], 2**63 + 1], strict=True):
        largest = next_start - 1
        assert start <= largest
        assert largest * (ERROR_STEPS - error) <= start * (ERROR_STEPS + error)


def test_partials_of_any_number_of_values_have_a_bounded_size() -> None:
    random = np.random.default_rng(9)
    numbers = random.integers(-(2**53), 2**53, 50_000)
    batch = pa.record_batch(
        {
            "key": pa.array(["a"] * len(numbers)).dictionary_encode(),
            "value": pa.array(numbers),
            "time": pa.array(np.zeros(len(numbers), np.int64)),
        }
    )
    sizes = [
        len(to_partials([batch], 1, aggregate.columns)[aggregate.columns[0].name][0].as_py())
        for aggregate in (Distinct(12), Distinct(16), Quantile())
    ]
    assert sizes[:2] == [1 + 2**12, 1 + 2**16]
    assert sizes[2] <= 1 + 16 * (2 * len(bucket_starts(100)) + 1)
