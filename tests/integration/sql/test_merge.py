"""The flusher's output on real servers: what becomes of rows to which partial results are added."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from helpers.databases import TestDatabase
from helpers.in_memory_batch import InMemoryBatch
from integration.sql.sql_sink import START, Flusher, Sink, result
from integration.sql.test_output import DISTANT_YEARS, ODD_KEYS
from skewless.errors import StoreError, TransactionAbortedError
from skewless.sql import schema
from skewless.wire.headers import schema_header
from skewless.wire.record import OutputRecord

AGGREGATES = ["count", "sum", "mean", "min", "max"]


def delta(key: str, count: int = 1, sum_: int = 1, **others: Any) -> Mapping[str, Any]:
    return {"pane": START, "key": key, "count": count, "sum": Decimal(sum_), "min": sum_, "max": sum_} | others


def flusher(database: TestDatabase, **settings: Any) -> Flusher:
    found = Flusher(database, aggregates=AGGREGATES, **settings)
    found.start()
    return found


def rows(database: TestDatabase, columns: str = "count, sum, min, max", table: str = "p") -> dict[str, tuple[Any, ...]]:
    key = database.quoted("key")
    return {row[0]: row[1:] for row in database.query(f"SELECT {key}, {columns} FROM {table}")}


def exact(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the numbers of a row as decimals: SQLite has some of them as text."""
    return tuple(None if value is None else Decimal(value) for value in row)


def test_add_partials_of_several_transactions_are_merged(database: TestDatabase) -> None:
    process = flusher(database)
    process.add(delta("a", 2, 5), delta("b", 1, -3))
    process.add(delta("a", 1, -7))
    process.add(delta("a", 1, 4), delta("c"))
    assert {key: exact(row) for key, row in rows(database).items()} == {
        "a": (4, 2, -7, 5),
        "b": (1, -3, -3, -3),
        "c": (1, 1, 1, 1),
    }
    assert rows(database, "revision") == {"a": (2,), "b": (0,), "c": (0,)}


def test_add_partials_of_a_key_in_two_partitions_are_merged(database: TestDatabase) -> None:
    process = Flusher(database, aggregates=AGGREGATES)
    process.start(0, 1)
    process.read_partials(delta("a", 2, 5), delta("b"), partition=0)
    process.read_partials(delta("a", 1, -7), delta("c"), partition=1)
    process.commit()
    assert {key: exact(row)[:2] for key, row in rows(database).items()} == {"a": (3, -2), "b": (1, 1), "c": (1, 1)}


def test_view_shows_the_results_with_the_mean(database: TestDatabase) -> None:
    process = flusher(database)
    process.add(delta("a", 2, 5))
    process.add(delta("a", 2, 6))
    assert rows(database, "count, mean, revision", "p_results") == {"a": (4, 2.75, 1)}


def test_view_shows_the_parts_of_a_composite_key(database: TestDatabase) -> None:
    process = flusher(database, key={"fields": [{"field": "hour"}, {"field": "category"}]})
    process.add(delta('["8","b"]', 2, 5), delta('["9","\\"a"]'))
    process.add(delta('["8","b"]', 1, 1))
    rows = database.query("SELECT hour, category, count, mean FROM p_results ORDER BY hour")
    assert rows == [("8", "b", 3, 2.0), ("9", '"a', 1, 1.0)]


def test_add_after_a_kill_continues_at_the_stored_offsets(database: TestDatabase) -> None:
    first = flusher(database)
    first.add(delta("a", 1, 1))
    first.read_partials(delta("a", 1, 2))  # and is killed
    second = flusher(database)
    assert second.offsets == {0: 1}
    second.add(delta("a", 1, 2))
    assert exact(rows(database)["a"]) == (2, 3, 1, 2)


def test_add_offset_of_another_process_adds_nothing(database: TestDatabase) -> None:
    zombie, successor = flusher(database), flusher(database)
    successor.add(delta("a", 1, 1))
    zombie.read_partials(delta("a", 1, 1))
    with pytest.raises(TransactionAbortedError, match="another process"):
        zombie.commit()
    assert exact(rows(database)["a"]) == (1, 1, 1, 1)


@pytest.mark.parametrize("lost", ["before", "after"])
def test_add_answer_to_a_commit_is_lost_adds_once(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    process = flusher(database)
    process.add(delta("a", 1, 1))
    commit, close = process.database.commit, process.database.close

    def cut() -> None:
        if lost == "after":
            commit()
        close()
        process.database.execute("SELECT 1")  # raises the error of a closed connection

    monkeypatch.setattr(process.database, "commit", cut)
    process.read_partials(delta("a", 1, 4))
    with pytest.raises((TransactionAbortedError, StoreError)):
        process.commit()
    monkeypatch.undo()
    again = flusher(database)
    if again.offsets == {0: 1}:
        assert lost == "before"
        again.add(delta("a", 1, 4))
    assert exact(rows(database)["a"]) == (2, 5, 1, 4)


def test_add_sum_of_38_digits_is_exact_and_a_larger_one_is_refused(database: TestDatabase) -> None:
    process = flusher(database)
    process.add(delta("a", sum=Decimal("9" * 37 + "8")), delta("b", 1, 2))
    process.add(delta("a"))
    assert exact(rows(database)["a"])[:2] == (2, Decimal("9" * 38))
    process.add(delta("a"), delta("b", 1, 2))
    assert exact(rows(database)["a"])[:2] == (2, Decimal("9" * 38))
    assert exact(rows(database)["b"])[:2] == (2, 4)
    offset = database.quoted("offset")
    assert [(bytes(key), number) for key, number in database.query(f"SELECT key_bytes, {offset} FROM p_refused")] == [
        (b"a", 2)
    ]


def test_add_numbers_beyond_64_bits_and_with_decimals_are_exact(database: TestDatabase) -> None:
    process = flusher(database, decimals=2)
    process.add(delta("a", sum=Decimal(2**63 - 1), min=-(2**63), max=2**63 - 1))
    process.add(delta("a", sum=Decimal(2**63 - 1), min=-5, max=105))
    process.add(delta("b", sum=Decimal(-10), min=-10, max=-10))
    process.add(delta("b", sum=Decimal(9), min=9, max=9))
    assert {key: exact(row) for key, row in rows(database).items()} == {
        "a": (2, Decimal(2**64 - 2) / 100, Decimal(-(2**63)) / 100, Decimal(2**63 - 1) / 100),
        "b": (2, Decimal("-0.01"), Decimal("-0.10"), Decimal("0.09")),
    }


def test_add_missing_values_are_null_until_there_is_one(database: TestDatabase) -> None:
    process = flusher(database, value={"missing": "skip"})
    none: dict[str, Any] = {"count_value": 0, "sum": Decimal(0), "min": 2**63 - 1, "max": -(2**63)}
    process.add(delta("a", 3, **none))
    assert rows(database)["a"] == (3, None, None, None)
    assert rows(database, "mean", "p_results") == {"a": (None,)}
    process.add(delta("a", 2, 8, count_value=1))
    process.add(delta("a", 1, **none))
    assert exact(rows(database)["a"]) == (6, 8, 8, 8)
    assert rows(database, "mean", "p_results") == {"a": (8.0,)}


def test_start_table_of_the_other_mode_is_an_error_also_when_it_is_empty(database: TestDatabase) -> None:
    Sink(database, aggregates=["count"]).start().store([result("a")])
    expected = r"table p in .* has rows of stage sink of pipeline p.* name another table in sink\.table"
    for _ in range(2):
        with pytest.raises(StoreError, match=expected):
            Flusher(database, aggregates=["count"]).start()
        database.query("DELETE FROM p")


def test_start_with_another_table_is_refused_and_adds_nothing(database: TestDatabase) -> None:
    flusher(database).add(delta("a", 1, 5))
    with pytest.raises(StoreError, match=r"stage flusher of pipeline p belong to table p, and sink\.table is other"):
        flusher(database, table="other")
    again = flusher(database)
    assert again.offsets == {0: 1}
    again.add(delta("a", 1, 6))
    assert exact(rows(database)["a"]) == (2, 11, 5, 6)
    assert not schema.exists(again.database, "other")


def test_two_processes_share_the_partitions(database: TestDatabase) -> None:
    one, two = Flusher(database, aggregates=AGGREGATES), Flusher(database, aggregates=AGGREGATES)
    one.start(0)
    two.start(1)
    one.read_partials(delta("a"), partition=0)
    two.read_partials(delta("b"), partition=1)
    two.commit()
    one.commit()
    assert rows(database, "count") == {"a": (1,), "b": (1,)}


def test_add_odd_keys_are_merged_unchanged(database: TestDatabase) -> None:
    process = flusher(database)
    process.add(*(delta(key, number, number) for number, key in enumerate(ODD_KEYS)))
    process.add(*(delta(key) for key in reversed(ODD_KEYS)))
    assert rows(database, "count") == {key: (number + 1,) for number, key in enumerate(ODD_KEYS)}


def test_add_nul_in_a_key_is_refused_by_postgresql_alone(database: TestDatabase) -> None:
    process = flusher(database)
    process.add(delta("a"), delta("nul\0"), delta("b"))
    process.add(delta("a"))
    refused = [bytes(key) for (key,) in database.query("SELECT key_bytes FROM p_refused")]
    assert refused == ([b"nul\0"] if database.dialect == "postgresql" else [])
    assert rows(database, "count") == {"a": (2,), "b": (1,)} | ({} if refused else {"nul\0": (1,)})


def test_add_foreign_record_with_nul_in_its_schema_is_refused_and_others_are_added(database: TestDatabase) -> None:
    process = flusher(database)
    foreign = OutputRecord("partials", b"", headers=(schema_header("a\0b"),))
    list(process.step.process(InMemoryBatch(0, [foreign], [0]), 0))
    process.offsets[0] = 1
    process.add(delta("a"))
    assert database.query("SELECT reason FROM p_refused") == [("unknown schema a\ufffdb",)]
    assert rows(database, "count") == {"a": (1,)}


def test_add_windows_of_distant_years_are_merged(database: TestDatabase) -> None:
    process = flusher(database)
    for count in (1, 2):
        process.add(*(delta(str(year), count, pane=pane) for year, pane in DISTANT_YEARS.items()))
    assert rows(database, "count") == {str(year): (3,) for year in DISTANT_YEARS}


def test_add_names_that_are_sql_words_are_quoted(database: TestDatabase) -> None:
    key = {"fields": [{"field": "a", "name": "select"}, {"field": "b", "name": "from"}]}
    process = Flusher(database, table="order", key=key, aggregates=["count", {"mean": "value", "as": "group"}])
    process.start()
    process.add(delta('["8","b"]', 2, 5))
    process.add(delta('["8","b"]', 2, 6))
    names = ", ".join(map(database.quoted, ("select", "from", "count", "group")))
    assert database.query(f"SELECT {names} FROM order_results") == [("8", "b", 4, 2.75)]
