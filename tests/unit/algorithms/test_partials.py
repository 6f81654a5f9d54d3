from __future__ import annotations

import pyarrow as pa

from skewless.aggregate_registry import find_aggregate
from skewless.algorithms.aggregates import AGGREGATES, columns_of
from skewless.algorithms.int128 import to_ints
from skewless.algorithms.keyed_table import KeyedTable
from skewless.algorithms.partials import merge_partials, to_partials

COUNT = columns_of([find_aggregate("count")])
NUMBERS = columns_of([find_aggregate(name) for name in ("count", "sum", "min", "max")])
ALL = columns_of(list(AGGREGATES.values()))


def batch(*tuples: tuple[str, int, int]) -> pa.RecordBatch:
    """(key, time, value) of each tuple. The batch has its own dictionary."""
    keys, times, values = zip(*tuples, strict=True)
    columns = {"key": pa.array(keys).dictionary_encode(), "time": pa.array(times), "value": pa.array(values)}
    return pa.record_batch(columns)


def test_to_partials_of_a_batch_has_one_row_per_pane_and_key() -> None:
    table = to_partials([batch(("a", 0, 5), ("b", 9, -2), ("a", 10, 4), ("a", 3, 1))], 10, NUMBERS)
    assert table.to_pylist() == [
        {"pane": 0, "key": "a", "count": 2, "sum": 6, "min": 1, "max": 5},
        {"pane": 0, "key": "b", "count": 1, "sum": -2, "min": -2, "max": -2},
        {"pane": 10, "key": "a", "count": 1, "sum": 4, "min": 4, "max": 4},
    ]


def test_to_partials_of_batches_with_different_dictionaries_is_correct() -> None:
    table = to_partials([batch(("a", 0, 1), ("b", 0, 1)), batch(("b", 0, 1), ("c", 0, 1))], 10, COUNT)
    assert dict(zip(table["key"].to_pylist(), table["count"].to_pylist(), strict=True)) == {"a": 1, "b": 2, "c": 1}


def test_to_partials_of_a_slice_counts_its_own_tuples_only() -> None:
    whole = batch(("a", 0, 1), ("b", 0, 1), ("a", 0, 1))
    assert to_partials([whole.slice(1)], 10, COUNT).to_pylist() == [
        {"pane": 0, "key": "a", "count": 1},
        {"pane": 0, "key": "b", "count": 1},
    ]


def test_to_partials_of_panes_far_apart_uses_memory_for_the_present_ones_only() -> None:
    far = 253_402_300_799_999
    table = to_partials([batch(("a", -far, 1), ("b", far, 1), ("b", far, 1))], 1, COUNT)
    assert table.to_pylist() == [{"pane": -far, "key": "a", "count": 1}, {"pane": far, "key": "b", "count": 2}]


def test_to_partials_of_sums_beyond_float_precision_is_exact() -> None:
    table = to_partials([batch(("a", 0, 2**53), ("a", 0, 1))], 10, columns_of([find_aggregate("sum")]))
    assert table["sum"].to_pylist() == [2**53 + 1]


def test_to_partials_without_tuples_is_an_empty_table_of_the_same_schema() -> None:
    full = to_partials([batch(("a", 0, 1))], 10, ALL)
    empty = batch(("a", 0, 1)).slice(1)
    assert to_partials([], 10, ALL).schema == to_partials([empty], 10, ALL).schema == full.schema
    assert to_partials([empty, batch(("a", 0, 1))], 10, ALL) == full


def test_merge_partials_by_any_columns_sums_their_rows() -> None:
    table = pa.table({"window": [0, 0, 60], "origin": [1, 2, 1], "key": ["a", "a", "b"], "count": [1, 2, 3]})
    by_key = merge_partials([table, table], ["key"], COUNT).sort_by("key")
    assert by_key.to_pylist() == [{"key": "a", "count": 6}, {"key": "b", "count": 6}]
    by_window = merge_partials([table], ["window", "key"], COUNT).sort_by("window")
    assert by_window.to_pylist() == [{"window": 0, "key": "a", "count": 3}, {"window": 60, "key": "b", "count": 3}]


def test_merge_partials_with_dictionary_keys_sums_their_rows() -> None:
    tables = [
        pa.table({"key": pa.array(keys).dictionary_encode(), "count": [1, 1]}) for keys in (["a", "b"], ["b", "c"])
    ]
    merged = merge_partials(tables, ["key"], COUNT)
    assert dict(zip(merged["key"].to_pylist(), merged["count"].to_pylist(), strict=True)) == {"a": 1, "b": 2, "c": 1}


def test_merge_partials_of_empty_tables_is_an_empty_table_of_the_same_schema() -> None:
    empty = to_partials([], 10, ALL)
    assert merge_partials([empty], ["pane", "key"], ALL) == empty


def test_merge_partials_of_a_sum_beyond_64_bits_in_between_is_exact() -> None:
    large = 2**62
    sums = columns_of([find_aggregate("sum")])
    parts = [to_partials([batch(("a", 0, large), ("a", 1, large))], 10, sums) for _ in range(2)]
    back = to_partials([batch(("a", 0, -large), ("a", 1, -large))], 10, sums)
    merged = merge_partials([*parts, back, back], ("key",), sums)
    table = KeyedTable(sums)
    for part in (*parts, back, to_partials([batch(("a", 0, 1 - large), ("a", 1, -large))], 10, sums)):
        table.merge(table.rows_of(part["key"]), {"sum": sums[0].from_arrow(part["sum"])})
    assert (merged["sum"].to_pylist(), to_ints(table.data(slice(1))["sum"])) == ([0], [1])
