from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.record_size import RECORD_BYTES, split_by_size


def tuples(keys: list[str]) -> pa.RecordBatch:
    names, values = pa.array(keys, pa.string()).dictionary_encode(), np.arange(len(keys))
    return pa.record_batch({"key": names, "value": values, "time": values + 1})


def table(keys: list[str]) -> pa.Table:
    return pa.table({"pane": np.arange(len(keys)), "key": pa.array(keys, pa.string())})


@pytest.mark.parametrize("make", [tuples, table])
@pytest.mark.parametrize("keys", [["a"] * 50, [f"{number:0100d}" for number in range(50)], ["a", "b" * 3000, "c"]])
def test_split_by_size_of_large_rows_gives_bounded_parts_in_order(make: type, keys: list[str]) -> None:
    rows = make(keys)
    parts = list(split_by_size(rows, 1000))
    assert [row for part in parts for row in part.to_pylist()] == rows.to_pylist()
    assert {part.schema for part in parts} == {rows.schema}
    assert [part.nbytes for part in parts if part.nbytes > 1000 and part.num_rows > 1] == []


def test_split_by_size_part_contains_its_own_keys_only() -> None:
    for part in split_by_size(tuples([f"{number:0100d}" for number in range(50)]), 1000):
        assert sorted(part["key"].dictionary.to_pylist()) == sorted(set(part["key"].to_pylist()))


@pytest.mark.parametrize("keys", [[], ["a"], ["a", "b"]])
def test_split_by_size_of_few_rows_gives_one_unchanged_part(keys: list[str]) -> None:
    (part,) = split_by_size(table(keys))
    assert part.to_pylist() == table(keys).to_pylist()


def test_split_by_size_of_a_slice_is_measured_without_its_parent() -> None:
    much = pa.table({"key": pa.array(["k" * 1000] * (RECORD_BYTES // 500))})
    assert len(list(split_by_size(much.slice(5, 10)))) == 1
