from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.sized import RECORD_BYTES, cut


def tuples(keys: list[str]) -> pa.RecordBatch:
    names, values = pa.array(keys, pa.string()).dictionary_encode(), np.arange(len(keys))
    return pa.record_batch({"key": names, "value": values, "time": values + 1})


def table(keys: list[str]) -> pa.Table:
    return pa.table({"pane": np.arange(len(keys)), "key": pa.array(keys, pa.string())})


@pytest.mark.parametrize("make", [tuples, table])
@pytest.mark.parametrize("keys", [["a"] * 50, [f"{number:0100d}" for number in range(50)], ["a", "b" * 3000, "c"]])
def test_parts_are_bounded_and_are_the_rows_in_their_order(make: type, keys: list[str]) -> None:
    rows = make(keys)
    parts = list(cut(rows, 1000))
    assert [row for part in parts for row in part.to_pylist()] == rows.to_pylist()
    assert {part.schema for part in parts} == {rows.schema}
    assert [part.nbytes for part in parts if part.nbytes > 1000 and part.num_rows > 1] == []


def test_a_part_has_its_own_keys_alone() -> None:
    for part in cut(tuples([f"{number:0100d}" for number in range(50)]), 1000):
        assert sorted(part["key"].dictionary.to_pylist()) == sorted(set(part["key"].to_pylist()))


@pytest.mark.parametrize("keys", [[], ["a"], ["a", "b"]])
def test_few_rows_are_one_part_as_they_are(keys: list[str]) -> None:
    (part,) = cut(table(keys))
    assert part.to_pylist() == table(keys).to_pylist()


def test_a_slice_of_much_is_not_taken_for_much() -> None:
    much = pa.table({"key": pa.array(["k" * 1000] * (RECORD_BYTES // 500))})
    assert len(list(cut(much.slice(5, 10)))) == 1
