"""Rows are validated before use: whatever is not a row of this pipeline is a bad record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from helpers.aggregates import DIGITS
from helpers.batches import ROW_FORMAT, rows_of
from helpers.headers import internal_headers
from skewless.aggregate_registry import results_of
from skewless.algorithms import record_size
from skewless.algorithms.aggregates import AGGREGATES, LOAD_COLUMN, BinaryColumn, wire_columns_of
from skewless.algorithms.partials import merge_rows, to_partials
from skewless.algorithms.value_type import ValueType
from skewless.algorithms.watermark import WatermarkState
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.errors import BadRecordError
from skewless.wire.columns import read_table, write_table
from skewless.wire.headers import report_of, schema_of, watermarks_of
from skewless.wire.record import OutputRecord
from skewless.wire.rows import PANE_HEADER, ROWS, RowFormat, is_rows, keys_panes_and_counts
from skewless.wire.tuples import TupleFormat

ROWS_IN = [(10, "a", 2, 5), (10, "b", 1, -3), (20, "a", 4, 2**62)]
COLUMNS = ("pane", "key", "count", "sum")


def only(*rows: tuple[int, str, int, int], row_format: RowFormat = ROW_FORMAT) -> OutputRecord:
    (record,) = row_format.records(
        "tuples", 3, rows_of(*rows, row_format=row_format), report_of({3: WatermarkState(7)})
    )
    return record


def read(record: OutputRecord, row_format: RowFormat = ROW_FORMAT) -> list[tuple[Any, ...]]:
    rows = row_format.read(record.value, record.headers)
    return [tuple(row[name] for name in COLUMNS) for row in rows.to_pylist()]


def test_rows_written_and_read_are_equal() -> None:
    record = only(*ROWS_IN)
    assert read(record) == ROWS_IN
    assert (record.topic, record.partition, record.key) == ("tuples", 3, None)
    assert schema_of(record.headers) == ROWS
    assert watermarks_of(record.headers) == {3: 7}
    assert dict(record.headers)[PANE_HEADER] == b"10"


def test_rows_whose_sums_fit_into_64_bits_are_written_as_such() -> None:
    assert read_table(only(*ROWS_IN).value).schema.field("sum").type == pa.int64()


def test_rows_of_many_keys_are_split_and_the_last_record_has_the_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_size, "RECORD_BYTES", 200)
    rows = rows_of(*((10, f"key {number}", 1, 1) for number in range(50)))
    records = list(ROW_FORMAT.records("tuples", 3, rows, report_of({3: WatermarkState(7)})))
    assert len(records) > 1
    assert [watermarks_of(record.headers) for record in records] == [{}] * (len(records) - 1) + [{3: 7}]
    assert sum(len(read(record)) for record in records) == 50


def test_rows_of_a_group_without_an_optional_value_may_have_a_null_partial() -> None:
    (digits,) = DIGITS.columns
    assert isinstance(digits, BinaryColumn)
    row_format = RowFormat([*wire_columns_of([]), replace(digits, optional=True)], pane_ms=10, grid_ms=60)
    nothing = pa.array([None], pa.binary())
    rows = row_format.from_partials(pa.table({"pane": [10], "key": ["a"], "count": [1], "digit_set": nothing}))
    (record,) = row_format.records("tuples", 0, rows, ())
    assert row_format.read(record.value, record.headers)["digit_set"].to_pylist() == [None]


@pytest.mark.parametrize("own_pane_ms", [5, 15, 60, 1])
def test_rows_of_other_panes_count_in_the_pane_of_their_start(own_pane_ms: int) -> None:
    earlier = RowFormat(ROW_FORMAT.columns, pane_ms=own_pane_ms, grid_ms=60)
    panes = [own_pane_ms * number for number in (-1, 0, 1, 7)]
    record = only(*((pane, "a", 1, 1) for pane in panes), row_format=earlier)
    assert [pane for pane, *_ in read(record)] == [pane // 10 * 10 for pane in panes]


def test_rows_of_sessions_of_other_panes_count_in_the_pane_of_their_first_tuple() -> None:
    gap_ms, grid_ms = 60, 120
    windows = SessionWindows(gap_ms, grid_ms)
    earlier, present = (
        RowFormat([LOAD_COLUMN, *windows.columns], pane_ms=pane_ms, grid_ms=grid_ms) for pane_ms in (60, 40)
    )
    tables = []
    for row_format, pane_ms, time in ((earlier, 60, 119), (present, 40, 41)):
        batch = pa.record_batch({"key": pa.array(["k"]).dictionary_encode(), "time": pa.array([time])})
        rows = row_format.from_partials(to_partials([batch], pane_ms, row_format.columns))
        (record,) = row_format.records("tuples", 0, rows, ())
        tables.append(present.read(record.value, record.headers))
    merged = merge_rows({0: tables}, present.columns)
    sessions = windows.merge([merged.select(["key", *(column.name for column in present.columns)])], present.columns)
    assert sorted(sessions["session_first"].to_pylist()) == [41, 119]


def table(**columns: Any) -> pa.Table:
    keys = pa.array(["a", "b"]).dictionary_encode()
    own = {"key": keys, "pane": pa.array([10, 20]), "count": pa.array([1, 2]), "sum": pa.array([3, 4])} | columns
    return pa.table({name: column for name, column in own.items() if column is not None})


INVALID = {
    "count 0": (table(count=pa.array([1, 0])), b"10", "a row has no tuples"),
    "count below 0": (table(count=pa.array([-1, 2])), b"10", "a row has no tuples"),
    "count null": (table(count=pa.array([1, None])), b"10", "columns are not those"),
    "sum null": (table(sum=pa.array([1, None])), b"10", "columns are not those"),
    "pane null": (table(pane=pa.array([10, None])), b"10", "columns are not those"),
    "key null": (table(key=pa.array(["a", None]).dictionary_encode()), b"10", "columns are not those"),
    "key without a dictionary": (table(key=pa.array(["a", "b"])), b"10", "columns are not those"),
    "column missing": (table(sum=None), b"10", "columns are not those"),
    "another column": (table(other=pa.array([1, 2])), b"10", "columns are not those"),
    "columns of tuples": (table(pane=None, count=None), b"10", "columns are not those"),
    "another type": (table(sum=pa.array(["1", "2"])), b"10", "columns are not those"),
    "pane that is not a multiple": (table(pane=pa.array([10, 21])), b"10", "does not begin at a multiple of 10 ms"),
    "panes that do not divide windows": (table(pane=pa.array([0, 70])), b"7", "not a length of panes"),
    "panes of 0 ms": (table(), b"0", "not a length of panes"),
    "panes that are not a number": (table(), b"+10", "not a length of panes"),
    "panes of too many digits": (table(), b"9" * 5000, "not a length of panes"),
    "no length of panes": (table(), None, "not a length of panes"),
}


@pytest.mark.parametrize("name", INVALID)
def test_rows_invalid_records_are_refused_with_the_reason(name: str) -> None:
    columns, pane, reason = INVALID[name]
    headers = [*internal_headers(ROWS, {}), *([] if pane is None else [(PANE_HEADER, pane)])]
    with pytest.raises(BadRecordError, match=reason):
        ROW_FORMAT.read(write_table(columns), headers)


def test_rows_null_in_the_dictionary_is_refused() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))
    value = write_table(table(key=keys))
    with pytest.raises(BadRecordError):
        ROW_FORMAT.read(value, [*internal_headers(ROWS, {}), (PANE_HEADER, b"10")])
    with pytest.raises(BadRecordError):
        keys_panes_and_counts(read_table(value))


def test_rows_of_any_aggregates_have_a_key_a_pane_and_a_count() -> None:
    written = read_table(only(*ROWS_IN).value)
    assert is_rows(written)
    (columns,) = keys_panes_and_counts(written)
    assert columns.to_pydict() == {"key": ["a", "b", "a"], "pane": [10, 10, 20], "count": [2, 1, 4]}
    for count in (None, pa.array(["1", "2"]), pa.array([1, None])):
        with pytest.raises(BadRecordError):
            keys_panes_and_counts(table(count=count))


VALUES = (ValueType("price", decimals=2), ValueType("user", "text"), ValueType("score", optional=True))
ELEMENTS: list[Any] = [
    *("count", {"sum": "price"}, {"mean": "score"}, {"min": "price"}, {"max": "score"}, {"first": "price"}),
    *({"last": "score"}, {"largest": "price", "n": 2}, {"smallest": "score", "n": 2}, {"stddev": "price"}),
    *({"distinct": "user"}, {"distinct": "score", "as": "scores"}, {"quantile": "price", "at": [0.5]}),
]


def test_rows_of_every_aggregate_merge_to_the_partials_of_all_tuples() -> None:
    results = results_of(ELEMENTS, VALUES)
    assert {result.aggregate.name for result in results} == set(AGGREGATES)
    columns = wire_columns_of(results)
    row_format, tuple_format = RowFormat(columns, pane_ms=10, grid_ms=60), TupleFormat(VALUES)
    batches = [
        tuple_format.from_rows([
            (f"k{number * seed % 7}", number * seed, f"u{number % 5}", None if number % 3 else number, number % 40)
            for number in range(60)
        ])
        for seed in (3, 5, 11)
    ]  # fmt: skip
    tables = []
    for batch in batches:
        rows = row_format.from_partials(to_partials([batch], 10, columns))
        (record,) = row_format.records("tuples", 0, rows, ())
        tables.append(row_format.read(record.value, record.headers))
    merged = merge_rows({0: tables}, columns)
    order = [("pane", "ascending"), ("key", "ascending")]
    names = [column.name for column in columns]
    assert merged.sort_by(order).select(["pane", "key", *names]).to_pylist() == (
        to_partials(batches, 10, columns).sort_by(order).select(["pane", "key", *names]).to_pylist()
    )
    assert sum(merged["rows"].to_pylist()) == sum(table.num_rows for table in tables)
