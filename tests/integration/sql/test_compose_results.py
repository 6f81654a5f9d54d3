"""The users and the dashboard of profile `sql` in deploy/compose.yaml, on a real PostgreSQL."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from helpers.databases import Server, TestDatabase
from helpers.docs_blocks import ROOT
from integration.sql.sql_sink import START, Sink, result

DEPLOY = ROOT / "deploy"


def test_dashboard_of_results_queries_show_the_rows_of_the_pipeline(
    database_servers: Callable[[str], Server],
) -> None:
    server = database_servers("postgresql")
    for statement in (DEPLOY / "compose" / "postgresql.sql").read_text().split(";\n")[:-1]:
        server.execute(statement)
    database = TestDatabase("postgresql", server.url("results"), server, "results")
    user: dict[str, Any] = {"username": "pipeline", "password": "pipeline"}
    sink = Sink(database, table="compose", **user).start()
    sink.store([result("a", count=3), result("a", START + 60_000, count=2), result("b", START + 60_000, count=5)])

    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "skewless-results.json").read_text())
    address = f"host=127.0.0.1 port={server.port} dbname=results user=grafana password=grafana"
    login = psycopg.connect(address, autocommit=True)
    with contextlib.closing(login) as connection:
        last, keys, windows = (
            connection.execute(target["rawSql"]).fetchall()
            for panel in dashboard["panels"]
            for target in panel["targets"]
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM compose")
    assert last == [("2026-01-01 00:01", 2, 7)]
    assert [row[:2] for row in keys] == [("b", 5), ("a", 2)]
    assert windows == [("00:00", 3), ("00:01", 7)]
