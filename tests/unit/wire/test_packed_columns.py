"""Packed columns contain what was packed, also beside Arrow's encoding, and invalid values are refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.errors import BadRecordError
from skewless.wire.columns import read_table, write_packed, write_table
from skewless.wire.packed_columns import MAGIC, TYPES

TEXTS = st.text(max_size=300)
ENTRIES = {
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300),
    "int32": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 70_000),
    "text": TEXTS,
    "bytes": st.binary(max_size=300),
    "int128": st.integers(-(10**38) + 1, 10**38 - 1),
    "dictionary": TEXTS,
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Return a table of all types, in several chunks, of which the first is a slice."""
    rows, nulls = draw(st.integers(0, 40)), draw(st.sets(st.sampled_from(sorted(TYPES))))
    columns = {}
    for name, data_type in TYPES.items():
        entry = ENTRIES[name] | st.none() if name in nulls else ENTRIES[name]
        columns[name] = pa.array(draw(st.lists(entry, min_size=rows, max_size=rows)), data_type)
    table = pa.table(columns)
    first, cut = draw(st.integers(0, rows)), draw(st.integers(0, rows))
    return pa.concat_tables([table.slice(first), table.slice(0, cut)])


@given(tables())
def test_packed_columns_of_any_table_are_read_as_they_were(table: pa.Table) -> None:
    packed = read_table(write_packed(table))
    assert packed.schema == table.schema == read_table(write_table(table)).schema
    assert packed.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("before", range(1, 17))
def test_packed_columns_of_128_bits_are_aligned_wherever_the_record_has_them(before: int) -> None:
    columns = {"bytes": pa.array([b"x" * before], pa.binary()), "large": pa.array([7], TYPES["int128"])}
    large = read_table(write_packed(pa.table(columns)))["large"]
    assert large.to_pylist() == [7]
    assert [chunk.buffers()[1].address % 16 for chunk in large.chunks] == [0]


@given(tables(), st.data())
def test_packed_columns_that_are_damaged_are_refused_or_other_columns(table: pa.Table, data: st.DataObject) -> None:
    value = bytearray(write_packed(table))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(len(MAGIC), len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_table(bytes(value[: data.draw(st.integers(len(MAGIC), len(value)))]))
    except BadRecordError:
        return
    found.validate(full=True)


@pytest.mark.parametrize(
    ("numbers", "width"),
    [([7, 7], 0), ([-1, 254], 1), ([-1, 255], 2), ([0, 2**16], 4), ([5, 5 + 2**32], 8), ([-(2**63), 2**63 - 1], 8)],
)
def test_packed_columns_of_integers_take_the_bytes_of_their_span(numbers: list[int], width: int) -> None:
    sizes = {count: len(write_packed(pa.table({"n": numbers * count}))) for count in (20, 30)}
    assert sizes[30] - sizes[20] == 20 * width


def test_packed_columns_of_tuples_take_half_the_bytes_of_arrow() -> None:
    draw = np.random.default_rng(1).integers
    keys = pa.array([f"{key:016d}" for key in draw(0, 10_000, 1_000)]).dictionary_encode()
    table = pa.table({"key": keys, "value": draw(0, 1000, 1_000), "time": 1_767_225_600_000 + draw(0, 500, 1_000)})
    assert len(write_packed(table)) < 0.56 * len(write_table(table))


def test_packed_columns_of_a_dictionary_with_a_null_have_null_rows() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), pa.array(["a", None]))
    assert read_table(write_packed(pa.table({"key": column})))["key"].to_pylist() == ["a", None, None]


def test_packed_columns_of_another_type_are_written_as_arrow() -> None:
    table = pa.table({"key": ["a"], "share": [0.5]})
    assert write_packed(table) == write_table(table)


def test_packed_columns_with_more_rows_than_a_record_has_are_refused() -> None:
    value = write_packed(pa.table({"n": np.zeros(2**22 + 1, np.int64)}))
    with pytest.raises(BadRecordError):
        read_table(value)
