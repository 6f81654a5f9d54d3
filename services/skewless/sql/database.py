"""Database: one connection to a database, and the operations in which the dialects differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from skewless.sql.errors import Failure
from skewless.sql.rows import Row
from skewless.sql.settings import DatabaseSettings
from skewless.sql.statements import Statements
from skewless.sql.table import ResultTable

CONNECT_S = 5.0
"""Time limit of an attempt to connect."""


class Database(ABC):
    """A connection that one thread uses at a time. Its methods raise the errors of the driver: see `failure_of`."""

    errors: tuple[type[Exception], ...] = ()
    """Errors of the driver, and those that it raises for values that it cannot send."""

    def __init__(self, settings: DatabaseSettings, table: ResultTable) -> None:
        self.settings = settings
        self.statements = Statements(settings.address.dialect, table)

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether there is a connection. The server may have ended it in the meantime."""

    @abstractmethod
    def connect(self) -> None:
        """Connect within CONNECT_S. Raises ConfigurationError if the driver is not installed."""

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
    def lock_schema(self) -> None:
        """Wait until no other process changes the schema, and keep others from it until `unlock_schema`."""

    @abstractmethod
    def unlock_schema(self) -> None:
        """End what `lock_schema` began, and keep the changes."""

    @abstractmethod
    def failure_of(self, error: Exception) -> Failure:
        """Classify an error of the driver."""
