"""The table of ranks has a row for each window and rank, whose key may change, in real databases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.databases import TestDatabase
from integration.sql.sql_sink import START, Item, Sink
from skewless.engine.step import Step
from skewless.errors import StoreError
from skewless.sql import clear
from skewless.sql.table import ResultTable
from skewless.stages.sink.step import Rank, SinkStep


class RankSink(Sink):
    """One process of the sink of ranks."""

    stage = "ranksink"
    topic = "p.top"

    def table(self) -> ResultTable:
        (table,) = self.settings.rank_tables()
        return table

    def new_step(self) -> Step:
        return SinkStep(Rank, transaction_rows=100)


def ranked(rank: int, key: str, total: float, revision: int = 0, **more: Any) -> Item:
    row = {"key": key, "window_start": START, "window_end": START + 60_000, "rank": rank, "count": 1, "sum": total}
    return f"{START}/{rank}".encode(), json.dumps(row | more | {"revision": revision}).encode()


def rows(sink: Sink) -> list[tuple[Any, ...]]:
    table = sink.database.statements.table.name
    return sink.database.query(f'SELECT "rank", "key", "sum" FROM {table} ORDER BY 1')


def test_table_of_ranks_has_the_last_key_of_each_rank(database: TestDatabase) -> None:
    sink = RankSink(database, aggregates=("count", "sum"), top_table="ranks").start()
    sink.store([ranked(1, "a", 9), ranked(2, "b", 7), ranked(3, "c", 5)])
    assert [tuple(row) for row in rows(sink)] == [(1, "a", 9), (2, "b", 7), (3, "c", 5)]
    sink.store([ranked(1, "b", 11, 1), ranked(2, "a", 9, 1), (f"{START}/3".encode(), None)])
    assert [tuple(row) for row in rows(sink)] == [(1, "b", 11), (2, "a", 9)]
    again = RankSink(database, aggregates=("count", "sum"), top_table="ranks").start()
    assert again.offsets == {0: 6}
    again.store([ranked(1, "z", 1, 0)])  # an earlier revision
    assert [tuple(row) for row in rows(again)] == [(1, "b", 11), (2, "a", 9)]


def test_table_of_ranks_with_parts_of_a_key_replaces_them_with_the_key(database: TestDatabase) -> None:
    key = {"fields": [{"field": "shop"}, {"field": "item"}]}
    sink = RankSink(database, key=key, aggregates=("count", "sum"), top_table="ranks").start()
    sink.store([ranked(1, '["x","1"]', 9, shop="x", item="1")])
    sink.store([ranked(1, '["y","2"]', 10, 1, shop="y", item="2")])
    found = sink.database.query('SELECT shop, item, "key" FROM ranks')
    assert [tuple(row) for row in found] == [("y", "2", '["y","2"]')]


def test_table_of_ranks_refuses_records_of_other_topics(database: TestDatabase) -> None:
    sink = RankSink(database, aggregates=("count", "sum"), top_table="ranks").start()
    _, value = ranked(1, "a", 9)
    sink.store([(b"foreign", value), (f"{START}/2".encode(), b'{"key": "a"}')])
    assert rows(sink) == []
    reasons = sink.database.query("SELECT reason FROM ranks_refused ORDER BY 1")
    assert len(reasons) == 2
    assert reasons[0][0].startswith("its key is not that of its window and")


def test_start_with_another_table_of_ranks_is_refused_with_its_setting(database: TestDatabase) -> None:
    RankSink(database, aggregates=("count", "sum"), top_table="ranks").start().store([ranked(1, "a", 9)])
    expected = r"stage ranksink of pipeline p belong to table ranks, and sink\.top_table is others, .* reset --to-start"
    with pytest.raises(StoreError, match=expected):
        RankSink(database, aggregates=("count", "sum"), top_table="others").start()


def test_reset_deletes_the_rows_of_both_tables(database: TestDatabase) -> None:
    results = Sink(database, aggregates=("count", "sum"), top_table="ranks").start()
    ranks = RankSink(database, aggregates=("count", "sum"), top_table="ranks").start()
    ranks.store([ranked(1, "a", 9), ranked(2, "b", 7)])
    others = ranks.settings.rank_tables()
    left = list(clear.tables(results.database, "p", others))
    assert left == ["ranks", "skewless_offsets"]
    assert [clear.delete_rows(results.database, name, "p", others) for name in left] == [2, 1]
    assert list(clear.tables(results.database, "p", others)) == []
