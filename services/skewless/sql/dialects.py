"""Registry of databases. The scheme of a URL chooses the class."""

from __future__ import annotations

from urllib.parse import urlsplit

from skewless.errors import unknown
from skewless.login_settings import require_readable
from skewless.sql.database import Database, DatabaseAddress
from skewless.sql.mysql import MysqlDatabase
from skewless.sql.postgresql import PostgresqlDatabase
from skewless.sql.settings import DatabaseSettings
from skewless.sql.sqlite import SqliteDatabase
from skewless.sql.table import ResultTable

DATABASES: dict[str, type[Database]] = {
    "postgresql": PostgresqlDatabase,
    "mysql": MysqlDatabase,
    "sqlite": SqliteDatabase,
}


def database_of(settings: DatabaseSettings, table: ResultTable) -> Database:
    """Return the database of these settings, not yet connected.

    Raises ConfigurationError if the driver is not installed, and with each file of `tls` that cannot be read.
    """
    if settings.tls is not None:
        require_readable("sink.tls", settings.tls.model_dump(exclude={"verify"}))
    kind, address = find_database(settings.url)
    return kind(settings, address, table)


def find_database(url: str) -> tuple[type[Database], DatabaseAddress]:
    """Return the class and the address of a URL. Raises ValueError with the remedy, which never contains the URL."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"is not a valid URL ({error}): write postgresql://host:5432/database") from None
    if parts.scheme not in DATABASES:
        raise ValueError(unknown("scheme", parts.scheme or "(none)", DATABASES))
    if parts.username is not None or parts.password is not None:
        raise ValueError("has credentials: they belong in sink.username and sink.password")
    if parts.query or parts.fragment:
        raise ValueError("has parameters after the name of the database: remove them, they have settings of their own")
    return DATABASES[parts.scheme], DATABASES[parts.scheme].address_of(parts)
