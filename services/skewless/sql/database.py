"""Database: one connection to a database, and the operations in which the dialects differ."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar, NamedTuple
from urllib.parse import SplitResult, unquote

from skewless.errors import ConfigurationError, StoreError, UnreachableError, how_to_add
from skewless.settings_base import InvalidSettingsError
from skewless.sql.errors import Failure
from skewless.sql.rows import Row
from skewless.sql.settings import DatabaseSettings
from skewless.sql.statements import Dialect, Statements
from skewless.sql.table import ResultTable

CONNECT_S = 5.0
"""Time limit of an attempt to connect."""


class DatabaseAddress(NamedTuple):
    """Parts of the URL of a database."""

    host: str
    """Empty: the database is a file."""
    port: int
    database: str
    """Name of the database, or the absolute path of its file."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}" if self.host else self.database


def load_driver(module: str, extra: str) -> ModuleType:
    """Import a driver, which is optional. Raises ConfigurationError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"sink.url: the driver {module} cannot be imported ({error}): {how_to_add(extra)}"
        ) from None


class Database(ABC):
    """A connection that one thread uses at a time. Its methods raise the errors of the driver: see `failure_of`."""

    default_port: ClassVar[int] = 0
    dialect: ClassVar[Dialect]
    reserved_names: ClassVar[Mapping[str, str]] = {}
    """Prefixes of names that tables must not have, each with its owner."""
    reserved_columns: ClassVar[frozenset[str]] = frozenset()
    """Names that columns must not have."""
    errors: tuple[type[Exception], ...] = ()
    """Errors of the driver, and those that it raises for values that it cannot send."""

    def __init__(self, settings: DatabaseSettings, address: DatabaseAddress, table: ResultTable) -> None:
        self.settings = settings
        self.address = address
        self.statements = Statements(self.dialect, table)

    @classmethod
    def address_of(cls, parts: SplitResult) -> DatabaseAddress:
        """Return the address of a URL. Raises ValueError with the remedy."""
        database = unquote(parts.path.removeprefix("/"))
        if not parts.hostname or not database or "/" in database:
            raise ValueError(f"must name a host and a database: {parts.scheme}://host/database")
        try:
            parts.hostname.encode("idna")  # as the drivers do
        except UnicodeError:
            raise ValueError(f"has no valid host name: write {parts.scheme}://host/database") from None
        return DatabaseAddress(parts.hostname, parts.port or cls.default_port, database)

    @classmethod
    def require_credentials(cls, settings: DatabaseSettings) -> None:
        """Raise InvalidSettingsError if credentials are missing or superfluous."""
        if settings.username is None:
            raise InvalidSettingsError("username: is required for a server")

    def require_existence(self) -> None:  # noqa: B027 - a server says it when it connects
        """Raise StoreError if the database does not exist and connecting would create it."""

    @abstractmethod
    def connect(self) -> None:
        """Connect within CONNECT_S. Raises ConfigurationError if the driver is not installed."""

    def prepare_upserts(self) -> None:  # noqa: B027 - most dialects need nothing
        """Prepare this connection for `upsert`, which commands that only read do not need."""

    @abstractmethod
    def close(self) -> None:
        """Discard the connection, if there is one."""

    @abstractmethod
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Execute a statement, and return the number of rows that it hit."""

    @abstractmethod
    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement once for each sequence of parameters."""

    @abstractmethod
    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""

    def begin(self) -> None:
        """Begin a transaction that writes."""
        self.execute("BEGIN")

    @abstractmethod
    def begin_snapshot(self) -> None:
        """Begin a transaction that reads the database as it is now, whatever others commit meanwhile."""

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Roll the transaction back."""
        self.execute("ROLLBACK")

    def upsert(self, rows: Sequence[Row]) -> None:
        """Store rows with different keys.

        A row is merged into the stored one if the table adds, otherwise it replaces it unless that has a higher
        revision.
        """
        self.execute_many(self.statements.store, rows)

    @abstractmethod
    def begin_alone(self) -> None:
        """Wait for the transactions of others that began in this way, and begin one. Each statement sees all commits.

        Transactions of `begin` run meanwhile, except on SQLite.
        """

    @abstractmethod
    def failure_of(self, error: Exception) -> Failure:
        """Classify an error of the driver."""

    @contextmanager
    def converted_errors(self, operation: str) -> Iterator[None]:
        """Convert errors of the driver in a block to StoreError, or UnreachableError if another attempt may succeed."""
        try:
            yield
        except self.errors as error:
            failure = self.failure_of(error)
            kind = StoreError if failure.is_final else UnreachableError
            raise kind(f"{operation} in {self.address}: {failure.message}") from None
