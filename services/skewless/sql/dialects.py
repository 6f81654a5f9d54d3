"""Chooses the class of a database by the scheme of its URL."""

from __future__ import annotations

from skewless.sql.database import Database
from skewless.sql.mysql import MysqlDatabase
from skewless.sql.postgresql import PostgresqlDatabase
from skewless.sql.settings import DatabaseSettings, Dialect
from skewless.sql.sqlite import SqliteDatabase
from skewless.sql.table import ResultTable

DATABASES: dict[Dialect, type[Database]] = {
    "postgresql": PostgresqlDatabase,
    "mysql": MysqlDatabase,
    "sqlite": SqliteDatabase,
}


def database_of(settings: DatabaseSettings, table: ResultTable) -> Database:
    """Return the database of these settings, not yet connected."""
    return DATABASES[settings.address.dialect](settings, table)
