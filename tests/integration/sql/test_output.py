"""The sink's output on real servers: what becomes of rows, of offsets, and of values that a database refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.databases import Server, TestDatabase, new_database
from helpers.forwarding import forwarded
from integration.sql.sql_sink import START, TOPIC, Item, Sink, result
from skewless.errors import StoreError, TransactionAbortedError
from skewless.sql import clear, output
from skewless.sql.rows import Row
from skewless.wire.topic_partition import TopicPartition


def keys(database: TestDatabase) -> list[str]:
    return sorted(key for (key,) in database.query(f"SELECT {database.quoted('key')} FROM p"))


def offsets(database: TestDatabase) -> list[tuple[int, int]]:
    partition = database.quoted("partition")
    rows = database.query(f"SELECT {partition}, next_offset FROM skewless_offsets ORDER BY {partition}")
    return [(int(number), int(offset)) for number, offset in rows]


def refused(database: TestDatabase) -> list[tuple[int | None, bytes, str, int]]:
    offset = database.quoted("offset")
    rows = database.query(f"SELECT window_ms, key_bytes, reason, {offset} FROM p_refused ORDER BY {offset}")
    return [(window, bytes(key), reason, number) for window, key, reason, number in rows]


def test_commit_first_rows_are_stored_with_their_offset(database: TestDatabase) -> None:
    Sink(database).start().store([result("a", count=3, sum=-7, mean=2.5, max=9), result("b")])
    start = {"postgresql": "to_char(window_start, 'YYYY-MM-DD HH24:MI:SS')", "mysql": "cast(window_start as char)"}
    rows = database.query(
        f"SELECT {start.get(database.dialect, 'window_start')}, count, sum, mean, max, revision FROM p "
        f"WHERE {database.quoted('key')} = 'a'"
    )
    assert [(str(row[0])[:19].replace("T", " "), *map(float, row[1:])) for row in rows] == [
        ("2026-01-01 00:00:00", 3, -7, 2.5, 9, 0)
    ]
    assert keys(database) == ["a", "b"]
    assert offsets(database) == [(0, 2)]


def test_commit_rows_of_several_megabytes_are_stored_and_replaced(database: TestDatabase) -> None:
    sink = Sink(database).start()
    long = [f"{number:02d}{'k' * 60_000}" for number in range(40)]
    sink.store([result(key, count=1) for key in long])
    sink.store([result(key, count=number, revision=1) for number, key in enumerate(long)])
    assert keys(database) == long
    assert sorted(database.query("SELECT count, revision FROM p")) == [(number, 1) for number in range(40)]


def test_commit_lower_revision_does_not_replace_a_row(database: TestDatabase) -> None:
    sink = Sink(database).start()
    sink.store([result("a", revision=2, count=5), result("a", revision=1, count=4)])
    sink.store([result("a", revision=1, count=4)])
    assert database.query("SELECT count, revision FROM p") == [(5, 2)]
    sink.store([result("a", revision=2, count=6)])
    assert database.query("SELECT count, revision FROM p") == [(6, 2)]


def test_commit_key_in_two_partitions_keeps_the_highest_revision(database: TestDatabase) -> None:
    """A correction that was written by another partitioner."""
    sink = Sink(database).start(0, 1)
    sink.read([result("a", revision=2, count=5), result("b", count=6), result("c", count=7)], 0)
    sink.read([result("a", revision=1, count=4), result("b", count=8), result("d", count=9)], 1)
    sink.commit()
    rows = database.query(f"SELECT count, revision FROM p ORDER BY {database.quoted('key')}")
    assert rows == [(5, 2), (8, 0), (7, 0), (9, 0)]
    assert refused(database) == []


def test_commit_tombstone_deletes_its_row_only(database: TestDatabase) -> None:
    sink = Sink(database).start()
    sink.store([result("a", revision=7), result("b")])
    sink.store([(result("a")[0], None), (result("absent")[0], None)])
    assert keys(database) == ["b"]
    sink.store([result("a", revision=3), (result("a")[0], None), result("a", revision=1, count=8)])
    assert database.query(f"SELECT count, revision FROM p WHERE {database.quoted('key')} = 'a'") == [(8, 1)]


@pytest.mark.parametrize("window", [-62_135_596_800_001, 10**17], ids=["before the year 1", "of another program"])
def test_commit_tombstone_of_a_window_beyond_the_type_deletes_the_others(database: TestDatabase, window: int) -> None:
    sink = Sink(database).start()
    sink.store([result("a"), result("b"), result("c")])
    sink.store([(f"{START}/a".encode(), None), (f"{window}/a".encode(), None), (f"{START}/c".encode(), None)])
    assert keys(database) == ["b"]
    assert offsets(database) == [(0, 6)]
    assert refused(database) == []


def test_commit_offset_of_another_process_writes_nothing_and_resets(database: TestDatabase) -> None:
    zombie, successor = Sink(database).start(), Sink(database).start()
    successor.store([result("a", count=2)])
    zombie.read([result("a", count=2), result("b")])
    with pytest.raises(TransactionAbortedError, match="another process"):
        zombie.commit()
    assert keys(database) == ["a"]
    zombie.output.abort(replace=False)
    zombie.start()
    assert zombie.offsets == {0: 1}
    zombie.store([result("b")])
    assert offsets(database) == [(0, 2)]
    with pytest.raises(TransactionAbortedError, match="another process"):
        successor.store([result("b")])


def test_commit_first_rows_of_two_pipelines_at_once_are_stored_for_one(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_ATTEMPTS", 1)
    first, second = (Sink(database, name=name, table="p", lock_timeout_s=1).start(0, 1) for name in ("first", "second"))
    upsert = first.database.upsert

    def upsert_while_the_other_commits(rows: Sequence[Row]) -> None:
        upsert(rows)
        with pytest.raises(TransactionAbortedError):  # it has waited
            second.store([result("b", count=2)])

    monkeypatch.setattr(first.database, "upsert", upsert_while_the_other_commits)
    first.store([result("a", count=1)])
    with pytest.raises(StoreError, match=r"table p in .* is that of pipeline first: name another table in sink\.table"):
        second.commit()
    assert keys(database) == ["a"]
    assert offsets(database) == [(0, 1), (1, 0)]
    other_process = Sink(database, name="first", table="p").start(2)
    other_process.read([result("b")], 2)
    other_process.commit()  # the refused pipeline no longer has the lock
    assert database.query("SELECT count FROM p") == [(1,), (1,)]


def test_start_after_a_kill_continues_at_the_stored_offsets(database: TestDatabase) -> None:
    first = Sink(database).start(0, 1)
    first.read([result("a")], 0)
    first.read([result("b"), result("c")], 1)
    first.commit()
    first.read([result("d")], 1)  # and is killed
    second = Sink(database).start(1, 0)
    assert second.offsets == {1: 2, 0: 1}
    partition = TopicPartition(TOPIC, 1)
    assert second.output.committed_offsets([partition])[partition] == (2, "\n[3]", 0)


def test_start_rows_without_offsets_are_an_error_with_the_remedy(database: TestDatabase) -> None:
    Sink(database).start().store([result("a")])
    database.query("DELETE FROM skewless_offsets")
    with pytest.raises(StoreError, match=r"has rows, but skewless_offsets has no offset .* sink check"):
        Sink(database).start()


def test_start_after_the_table_was_dropped_is_refused_and_is_filled_again_without_offsets(
    database: TestDatabase,
) -> None:
    Sink(database).start().store([result("a"), result("b")])
    database.query("DROP TABLE p")
    with pytest.raises(StoreError, match=r"table p in .* does not exist, but skewless_offsets .* delete these offsets"):
        Sink(database).start()
    database.query("DELETE FROM skewless_offsets")
    again = Sink(database).start()
    assert again.offsets == {0: 0}
    again.store([result("a"), result("b")])
    assert keys(database) == ["a", "b"]


def test_start_with_another_table_is_refused_and_each_remedy_works(database: TestDatabase) -> None:
    Sink(database, table="former").start().store([result("a"), result("b")])
    other = Sink(database, table="other")
    with pytest.raises(StoreError, match=r"stage sink of pipeline p belong to table former, and sink\.table is other"):
        other.start()
    assert Sink(database, table="former").start().offsets == {0: 2}
    assert Sink(database, name="q", table="third").start().offsets == {0: 0}
    left = list(clear.tables(other.database, "p"))  # as `skewless reset` with the new name
    assert left == ["skewless_offsets"]
    clear.delete_rows(other.database, "skewless_offsets", "p")
    again = Sink(database, table="other").start()
    assert again.offsets == {0: 0}
    again.store([result("a"), result("b")])
    assert Sink(database, table="other").start().offsets == {0: 2}


def test_start_with_a_renamed_table_continues(database: TestDatabase) -> None:
    Sink(database).start().store([result("a")])
    for name in ("", "_refused"):
        database.query(f"ALTER TABLE p{name} RENAME TO q{name}")
    database.query("UPDATE skewless_offsets SET table_name = 'q'")
    renamed = Sink(database, table="q").start()
    assert renamed.offsets == {0: 1}
    renamed.store([result("b")])
    assert database.query(f"SELECT {database.quoted('key')} FROM q ORDER BY 1") == [("a",), ("b",)]


def test_start_offsets_of_another_cluster_are_an_error_that_names_both(database: TestDatabase) -> None:
    Sink(database).start().store([result("a")])
    with pytest.raises(StoreError, match="are of Kafka cluster cluster, and this process reads from cluster other"):
        Sink(database, cluster="other").start()


ODD_KEYS = [
    "'; DROP TABLE p; --",
    'a"b`c\\d%s%%',
    "\U0001f600\U0001f468\u200d\U0001f469",
    "\u05d0\u200f\u200fx\u202e",
    "tab\tnew\nline\r",
    "trailing ",
    "trailing",
    "A",
    "a",
    "\u00e4",
    "a\u0308",
    "",
    "k" * 65_536,
    "\\N",
    "null",
    "select",
]


def test_commit_odd_keys_are_stored_unchanged(database: TestDatabase) -> None:
    Sink(database).start().store([result(key, revision=number) for number, key in enumerate(ODD_KEYS)])
    stored = database.query(f"SELECT {database.quoted('key')}, revision FROM p")
    assert sorted(stored) == sorted((key, number) for number, key in enumerate(ODD_KEYS))
    assert refused(database) == []


def test_select_text_compares_byte_by_byte(database: TestDatabase) -> None:
    Sink(database).start().store([result(key) for key in ODD_KEYS])
    for key in ("A", "a", "trailing", "\u00e4"):
        ((count,),) = database.query(f"SELECT count(*) FROM p WHERE {database.quoted('key')} = '{key}'")
        assert count == 1, key


@pytest.mark.parametrize("number", ["9223372036854775807", "-9223372036854775808", "0", "-0", "9" * 38, "-" + "9" * 38])
def test_commit_large_number_is_exact(database: TestDatabase, number: str) -> None:
    record = result("a", sum="SUM")
    assert record[1] is not None
    Sink(database).start().store([(record[0], record[1].replace(b'"SUM"', number.encode()))])
    ((stored,),) = database.query("SELECT sum FROM p")
    assert int(stored) == int(number)


@pytest.mark.parametrize(
    ("number", "shown"),
    [("0.10", "0.10"), ("-12.3", "-12.30"), ("9" * 36 + ".99", "9" * 36 + ".99"), ("1e3", "1000.00")],
)
def test_commit_number_with_decimals_is_exact(database: TestDatabase, number: str, shown: str) -> None:
    record = result("a", sum="SUM")
    assert record[1] is not None
    Sink(database, decimals=2).start().store([(record[0], record[1].replace(b'"SUM"', number.encode()))])
    ((stored,),) = database.query("SELECT sum FROM p")
    assert str(stored) == shown


def test_commit_numbers_as_text_lists_and_missing_results_are_exact(database: TestDatabase) -> None:
    aggregates = ["count", "sum", "mean", {"largest": "value", "n": 2, "as": "top"}]
    sink = Sink(database, value={"decimals": 2, "missing": "skip"}, aggregates=aggregates).start()
    missing: dict[str, Any] = {"sum": None, "mean": None, "top": None}
    record = result("c", top="TOP")
    assert record[1] is not None
    digits = b"[12345678901234567.89,-0.10]"
    sink.store(
        [
            result("a", count=2, sum="9" * 36 + ".10", mean=0.5, top=["2.50", "1.00"]),
            result("b", **missing),
            (record[0], record[1].replace(b'"TOP"', digits)),
            result("d", top="no list"),
        ]
    )
    rows = database.query(f"SELECT sum, mean, top FROM p ORDER BY {database.quoted('key')}")
    assert [(None if total is None else str(total), mean, top) for total, mean, top in rows] == [
        ("9" * 36 + ".10", 0.5, '["2.50", "1.00"]'),
        (None, None, None),
        ("1.00", 1.0, digits.decode()),
    ]
    assert [(key, offset) for _, key, _, offset in refused(database)] == [(b"d", 3)]
    sink.store([result("a", revision=1, **missing)])
    assert database.query(f"SELECT sum, mean, top FROM p WHERE {database.quoted('key')} = 'a'") == [(None, None, None)]


@pytest.mark.parametrize("number", ["1" + "0" * 38, "0.5", "1e99"])
def test_commit_number_that_does_not_fit_is_refused(database: TestDatabase, number: str) -> None:
    record = result("a", sum="SUM")
    assert record[1] is not None
    Sink(database).start().store([result("b"), (record[0], record[1].replace(b'"SUM"', number.encode())), result("c")])
    assert keys(database) == ["b", "c"]
    ((window, key, reason, offset),) = refused(database)
    assert (window, key, offset) == (START, b"a", 1)
    assert "a number has more" in reason


DAY = 86_400_000


DISTANT_YEARS = {1: -62_135_596_800_000, 1900: -2_208_988_800_000, 9999: 253_402_300_740_000 - DAY}


@pytest.mark.parametrize(("year", "window"), DISTANT_YEARS.items())
def test_commit_window_of_a_distant_year_is_stored(database: TestDatabase, year: int, window: int) -> None:
    Sink(database).start().store([result("a", window)])
    expression = {"postgresql": "extract(year from window_start)", "mysql": "year(window_start)"}
    stored = database.query(f"SELECT {expression.get(database.dialect, 'substr(window_start, 1, 4)')} FROM p")
    assert [int(value) for (value,) in stored] == [year]


def test_commit_year_beyond_the_type_is_refused_by_mysql_alone(database: TestDatabase) -> None:
    sink = Sink(database).start()
    sink.store([result("a"), result("b", 253_402_300_740_000 + DAY), result("c")])
    expected = ["a", "c"] if database.dialect == "mysql" else ["a", "b", "c"]
    assert keys(database) == expected
    assert len(refused(database)) == 3 - len(expected)


def test_commit_nul_in_a_key_is_refused_by_postgresql_alone(database: TestDatabase) -> None:
    items = [result(f"k{number}") for number in range(20)]
    items[7] = result("nul\0")
    Sink(database).start().store(items)
    if database.dialect == "postgresql":
        ((window, key, reason, offset),) = refused(database)
        assert (window, key, offset) == (START, b"nul\0", 7)
        assert "NUL" in reason
    assert len(keys(database)) == 20 - len(refused(database))
    assert offsets(database) == [(0, 20)]


def test_commit_parts_of_a_composite_key_are_columns(database: TestDatabase) -> None:
    sink = Sink(database, key={"fields": [{"field": "hour"}, {"field": "category"}]}).start()
    item = result('["8","b"]', hour="8", category="'; --")
    sink.store([item, result('["9","a"]'), result('["8","b"]', revision=1, hour="8", category="'; --")])
    assert database.query("SELECT hour, category, revision FROM p") == [("8", "'; --", 1)]
    assert [offset for _, _, _, offset in refused(database)] == [1]  # without parts


def test_commit_names_that_are_sql_words_are_quoted(database: TestDatabase) -> None:
    key = {"fields": [{"field": "a", "name": "select"}, {"field": "b", "name": "from"}]}
    aggregates = ["count", {"sum": "value", "as": "group"}, {"max": "value", "as": "where"}]
    sink = Sink(database, table="order", key=key, aggregates=aggregates).start()
    words: dict[str, Any] = {"select": "8", "from": "b", "group": 7, "where": 5}
    sink.store([result('["8","b"]', revision=1, **words), result('["9","c"]', **words), (result('["9","c"]')[0], None)])
    names = ", ".join(map(database.quoted, words))
    assert database.query(f"SELECT {names}, revision FROM {database.quoted('order')}") == [("8", "b", 7, 5, 1)]
    assert Sink(database, table="order", key=key, aggregates=aggregates).start().offsets == {0: 3}


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_connect_host_is_an_ipv6_address(database_servers: Callable[[str], Server], scheme: str) -> None:
    found = new_database(scheme, database_servers, Path())
    assert found.server is not None
    with forwarded(("::1", 0), ("127.0.0.1", found.server.port)) as port:
        address = f"{scheme}://[::1]:{port}/{found.name}"
        sink = Sink(TestDatabase(scheme, address, found.server, found.name)).start()
        sink.store([result("a")])
        sink.output.close()
    assert keys(found) == ["a"]


FOREIGN: list[Item] = [
    (b"x", b"no json"),
    (b"x", b"[]"),
    (b"x", b'{"key": "a"}'),
    (None, b"{}"),
    (b"1/b", result("a")[1]),
    (b"x", None),
    (b"\xff", None),
    (f"{START}/s".encode(), b'{"key": "\\ud800", "window_start": 1767225600000, "window_end": 1, "revision": 0}'),
    (f"{2**63}/b".encode(), None),
    (f"{2**63}/b".encode(), b"no json"),
    result("b", 2**63),
    result("b", 10**400),
    result("c", revision=2**63),
]


@pytest.mark.parametrize("item", FOREIGN, ids=str)
def test_commit_foreign_record_is_refused_and_its_neighbours_are_stored(database: TestDatabase, item: Item) -> None:
    sink = Sink(database).start()
    sink.store([result("a"), item, result("b")])
    assert keys(database) == ["a", "b"]
    assert sink.step.max_event_time(0) == START
    assert [offset for _, _, _, offset in refused(database)] == [1]


def test_commit_constraint_of_the_user_is_an_error_with_its_name(database: TestDatabase) -> None:
    sink = Sink(database).start()
    if database.dialect == "sqlite":
        database.query("CREATE TRIGGER no_zero BEFORE INSERT ON p BEGIN SELECT RAISE(ABORT, 'no_zero'); END")
    else:
        database.query("ALTER TABLE p ADD CONSTRAINT no_zero CHECK (count <> 0)")
    with pytest.raises(StoreError, match="no_zero"):
        sink.store([result("a", count=0)])
    assert offsets(database) == []
