"""The table read page by page on real servers: every row once, exact values, and one moment."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from helpers.databases import TestDatabase
from integration.sql.sql_sink import START, TOPIC, Flusher, Sink, result
from integration.sql.test_output import DISTANT_YEARS
from skewless.errors import StoreError
from skewless.sql import table_reader
from skewless.sql.table_reader import ResultReader, StoredOffset, StoredRow, snapshot


def read(sink: Sink, first: int | None = None, last: int | None = None) -> list[StoredRow]:
    results = sink.settings.table_settings.stored_results(sink.settings.results)
    reader = ResultReader(sink.settings.sink_table(), results)
    with snapshot(sink.database) as stored:
        return [reader(row) for page in stored.pages(first, last) for row in page]


def test_pages_every_row_is_read_once(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "PAGE_ROWS", 3)
    sink = Sink(database).start()
    windows = (*DISTANT_YEARS.values(), START, START + 60_000)
    sink.store([result(f"k{number}", window) for window in windows for number in range(6)])
    rows = read(sink)
    assert [row[0] for row in rows] == [window for window in sorted(windows) for _ in range(6)]
    assert {(row[0], row[2]) for row in rows} == {(window, f"k{number}") for window in windows for number in range(6)}
    assert all(row[1] == row[0] + 60_000 for row in rows)
    assert {row[0] for row in read(sink, START - 1, START)} == {START}
    with snapshot(sink.database) as stored:
        assert list(stored.windows()) == [(window, window + 60_000) for window in sorted(windows)]


def test_windows_are_read_with_a_query_for_many_of_them(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(database).start()
    windows = [START + number * 60_000 for number in range(1001)]
    sink.store([result(key, window) for window in windows for key in ("a", "b")])
    queries: list[str] = []
    query = sink.database.query

    def noted(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        queries.append(statement)
        return query(statement, parameters)

    monkeypatch.setattr(sink.database, "query", noted)
    with snapshot(sink.database) as stored:
        assert list(stored.windows()) == [(window, window + 60_000) for window in windows]
    assert len(queries) == 4


@pytest.mark.parametrize("name", ["steps", "same"])
def test_windows_of_a_table_with_the_name_of_an_alias_are_read(name: str, database: TestDatabase) -> None:
    sink = Sink(database, table=name).start()
    windows = [START, START + 60_000]
    sink.store([result("a", window) for window in windows])
    with snapshot(sink.database) as stored:
        assert list(stored.windows()) == [(window, window + 60_000) for window in windows]


def test_pages_values_are_those_of_the_results(database: TestDatabase) -> None:
    aggregates = ["count", "sum", "mean", "min", {"largest": "value", "n": 2, "as": "top"}]
    sink = Sink(database, value={"decimals": 2, "missing": "skip"}, aggregates=aggregates).start()
    missing: dict[str, Any] = dict.fromkeys(("sum", "mean", "min", "top"))
    exact: dict[str, Any] = {"sum": "9" * 36 + ".10", "mean": 0.1, "min": "-12.5", "top": ["2.50", "1.00"]}
    sink.store([result("a", count=2**63 - 1, **exact), result("b", revision=4, **missing)])
    assert sorted(row[2:] for row in read(sink)) == [
        ("a", 2**63 - 1, Decimal("9" * 36 + ".10"), 0.1, Decimal("-12.5"), [Decimal("2.5"), Decimal(1)], 0),
        ("b", 1, None, None, None, None, 4),
    ]


def test_pages_of_partial_results_are_sums_and_counts(database: TestDatabase) -> None:
    flusher = Flusher(database, aggregates=["mean", "min"], key={"fields": [{"field": "hour"}, {"field": "city"}]})
    flusher.start()
    flusher.read_partials({"pane": START, "key": '["8","x"]', "count": 2, "sum": Decimal(2**64), "min": -3})
    flusher.commit()
    assert read(flusher) == [(START, START + 60_000, '["8","x"]', "8", "x", 2**64, 2, -3, 0)]


@pytest.mark.parametrize(
    ("column", "value", "needed"),
    [
        ("sum", "'much'", "decimal(38,2)"),
        ("sum", "'NaN'", "decimal(38,2)"),
        ("sum", "'0.123'", "decimal(38,2)"),
        ("sum", "'1e36'", "decimal(38,2)"),
        ("count", "'many'", "integer"),
        ("count", "'1.5'", "integer"),
        ("mean", "'half'", "double"),
        ("top", "'[1'", "json"),
        ("top", """'["x"]'""", "json"),
        ("revision", "'last'", "integer"),
        ("key", "CAST('b' AS BLOB)", "text"),
    ],
)
def test_reader_value_of_another_type_names_its_row(tmp_path: Path, column: str, value: str, needed: str) -> None:
    aggregates = ["count", "sum", "mean", {"largest": "value", "n": 2, "as": "top"}]
    database = TestDatabase("sqlite", f"sqlite://{tmp_path}/p.db", None, "p")
    sink = Sink(database, value={"decimals": 2}, aggregates=aggregates).start()
    sink.store([result("a", top=[1]), result("b", top=[1])])
    database.query(f"UPDATE p SET {column} = {value} WHERE key = 'b'")
    with pytest.raises(StoreError, match=r"table p, key b.*, window 2026-01-01T00:00:00Z: column ") as error:
        read(sink)
    assert f"column {column} has the value " in str(error.value)
    assert f", it needs {needed}: correct the value, or delete the row" in str(error.value)


def test_snapshot_later_transactions_are_not_visible(database: TestDatabase) -> None:
    sink, reader = Sink(database).start(), Sink(database).start()
    sink.store([result("a"), result("nul\0") if database.dialect == "postgresql" else (b"1/x", b"{}")])
    with snapshot(reader.database) as stored:
        assert stored.offsets("p", "sink", TOPIC) == {0: StoredOffset(2, "")}
        sink.store([result("b")])
        assert [row[2] for page in stored.pages() for row in page] == ["a"]
        assert stored.offsets("p", "sink", TOPIC)[0].next_offset == 2
        ((window, key),) = stored.refused()
        assert (window, key) in {(START, b"nul\0"), (1, b"x")}
    assert len(read(reader)) == 2


def test_snapshot_missing_table_is_an_error_with_the_remedy(database: TestDatabase) -> None:
    sink = Sink(database).start()
    database.query("DROP TABLE p")
    with (
        pytest.raises(
            StoreError, match=r"reading table p in .*delete its offsets in skewless_offsets and create it again"
        ),
        snapshot(sink.database) as stored,
    ):
        list(stored.pages())
