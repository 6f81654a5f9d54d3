"""SQLite, by the standard library."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import SplitResult, unquote

from skewless.errors import StoreError
from skewless.settings_base import InvalidSettingsError
from skewless.sql.database import Database, DatabaseAddress
from skewless.sql.errors import NO_TABLE, ErrorClass, Failure
from skewless.sql.rows import Row, time_ms
from skewless.sql.settings import DatabaseSettings
from skewless.sql.statements import Dialect
from skewless.sql.table import DIGITS, Merge, ResultTable

PROGRESS_STEPS = 100_000
"""Number of instructions of SQLite's virtual machine between two checks of the time limit: about a millisecond."""

CACHE_KIB = 65_536
"""Memory for pages of the file. A window of 200,000 keys fits in."""
CHECKPOINT_PAGES = 16_000
"""Pages in the write-ahead log from which they go to the file: 64 MB. Pages that change often go there less often."""

_C = ErrorClass
_BY_CODE: Mapping[int, tuple[ErrorClass, str]] = {
    sqlite3.SQLITE_BUSY: (_C.TRANSIENT, "lock_timeout"),
    sqlite3.SQLITE_LOCKED: (_C.TRANSIENT, "lock_timeout"),
    sqlite3.SQLITE_INTERRUPT: (_C.TRANSIENT, "statement_timeout"),
    sqlite3.SQLITE_IOERR: (_C.UNAVAILABLE, "system"),
    sqlite3.SQLITE_FULL: (_C.UNAVAILABLE, "resources"),
    sqlite3.SQLITE_NOMEM: (_C.UNAVAILABLE, "resources"),
    sqlite3.SQLITE_READONLY: (_C.UNAVAILABLE, "read_only"),
    sqlite3.SQLITE_TOOBIG: (_C.VALUE, "value"),
}
"""Classes of errors by SQLite's primary result code."""
RETRY_S = 0.01
"""Time between two attempts to set the journal mode."""
_INT64 = 2**63
NOT_A_TIME = -_INT64
"""What numpy returns for an empty text and for NaT."""


MERGES: tuple[Merge, ...] = ("sum", "min", "max")
SQLITE = Dialect(
    # SQLite has neither decimals nor integers of more than 64 bits: it would round them to doubles. A column without a
    # type keeps what is written: text with all digits, or an integer. So decimals are merged by functions of this
    # program.
    types={
        "time": "TEXT",
        "id": "BLOB",
        "text": "TEXT",
        "integer": "INTEGER",
        "decimal": "",
        "double": "REAL",
        "boolean": "INTEGER",
        "json": "TEXT",
        "bytes": "BLOB",
        "name": "TEXT",
        "number": "INTEGER",
    },
    decimal_merges={merge: f"skewless_{merge}({{}}, {{}})" for merge in MERGES},
    time_ms="skewless_time_ms({})",  # its own functions end at the year 9999
    parameter="?",
    names={"keyed_table_options": " WITHOUT ROWID", "create_view": "CREATE VIEW IF NOT EXISTS"},
    templates={
        "columns_select": "SELECT name, type FROM pragma_table_info(%s)",
        "required_select": """\
SELECT name FROM pragma_table_info(%s) WHERE "notnull" AND dflt_value IS NULL""",
        "key_select": "SELECT name FROM pragma_table_info(%s) WHERE pk > 0",
    },
)


class SqliteDatabase(Database):
    """A connection to a file of SQLite."""

    dialect: ClassVar[Dialect] = SQLITE
    reserved_names: ClassVar[Mapping[str, str]] = {"sqlite_": "SQLite"}
    errors = (sqlite3.Error, UnicodeError, OverflowError)

    def __init__(self, settings: DatabaseSettings, address: DatabaseAddress, table: ResultTable) -> None:
        super().__init__(settings, address, table)
        self._connection: sqlite3.Connection | None = None
        self._deadline = 0.0
        self._decimals = [index for index, column in enumerate(table.columns) if column.kind == "decimal"]

    @classmethod
    def address_of(cls, parts: SplitResult) -> DatabaseAddress:
        """Return the path of the file in a URL. Raises ValueError with the remedy."""
        path = unquote(parts.path)
        if parts.netloc or not path.startswith("/") or path.endswith("/"):
            raise ValueError("must name a file by its absolute path: sqlite:///folder/results.db")
        # Other libraries write an absolute path with four slashes.
        return DatabaseAddress("", 0, str(Path("/" + path.lstrip("/"))))

    @classmethod
    def require_credentials(cls, settings: DatabaseSettings) -> None:
        """Raise InvalidSettingsError for settings of a server."""
        for name in ("username", "password", "tls"):
            if getattr(settings, name) is not None:
                raise InvalidSettingsError(f"{name}: a file of SQLite has no {name}; remove it")

    def require_existence(self) -> None:
        """Raise StoreError if the file does not exist."""
        with contextlib.suppress(OSError):  # `connect` reports a folder that this user may not enter
            if not Path(self.address.database).is_file():
                raise StoreError(
                    f"{self.address} does not exist: correct sink.url, or run the pipeline, which creates it "
                    "in a folder that exists"
                )

    def connect(self) -> None:
        """Open the file, and create it if it does not exist. Its folder must exist."""
        connection = sqlite3.connect(
            self.address.database,
            timeout=self.settings.lock_timeout_s,
            isolation_level=None,  # `begin` and `commit` are statements
            check_same_thread=False,
        )
        self._use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        for name, function in FUNCTIONS.items():
            connection.create_function(f"skewless_{name}", 2, function, deterministic=True)
        connection.create_function("skewless_time_ms", 1, _time_ms, deterministic=True)
        connection.set_progress_handler(self._is_late, PROGRESS_STEPS)
        self._connection = connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Set the journal mode. SQLite itself does not wait for another process that sets it in a new file."""
        deadline = time.monotonic() + self.settings.lock_timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    connection.close()
                    raise
                time.sleep(RETRY_S)
            else:
                return

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.ProgrammingError("the connection is closed")
        self._deadline = time.monotonic() + self.settings.statement_timeout_s
        return self._connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Execute a statement."""
        return self._ready().execute(statement, parameters).rowcount

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each sequence of parameters."""
        self._ready().executemany(statement, rows)

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._ready().execute(statement, parameters).fetchall()

    def begin(self) -> None:
        """Begin a transaction with the lock of a writer, because a reader cannot always become one."""
        self.execute("BEGIN IMMEDIATE")

    def begin_snapshot(self) -> None:
        """Begin a transaction. It reads the file as it is at its first statement."""
        self.execute("BEGIN")

    def upsert(self, rows: Sequence[Row]) -> None:
        """Insert or replace rows. SQLite's doubles do not have the digits of a decimal."""
        super().upsert(list(map(self.stored, rows)) if self._decimals else rows)

    def stored(self, row: Row) -> Row:
        """Return a row as SQLite stores it."""
        values = list(row)
        for index in self._decimals:
            if values[index] is not None:
                values[index] = _without_decimals(values[index])
        return tuple(values)

    def begin_alone(self) -> None:
        """Begin a transaction: only one process writes at a time."""
        self.begin()

    def failure_of(self, error: Exception) -> Failure:
        """Classify an error by its result code."""
        message = " ".join(str(error).split())
        if isinstance(error, UnicodeError | OverflowError | sqlite3.DataError | sqlite3.InterfaceError):
            return Failure(_C.VALUE, "value", message)
        if FUNCTION_FAILED in message:  # only those that merge decimals raise errors
            return Failure(_C.VALUE, "value", f"a sum has more than {DIGITS} digits, or is added to what is no number")
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            return Failure(_C.UNAVAILABLE, "connection", message)
        if code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
            return Failure(_C.DUPLICATE, "duplicate", message)
        if code == sqlite3.SQLITE_CONSTRAINT_NOTNULL:  # a result from before its aggregate was added
            return Failure(_C.VALUE, "value", message)
        error_class, cause = _BY_CODE.get(code & 0xFF, (_C.PERMANENT, "refused"))
        if code & 0xFF == sqlite3.SQLITE_CANTOPEN:
            message += "; create its folder, let this user write in it, or correct sink.url"
        if cause == "read_only" and self._connection is None:
            error_class = _C.PERMANENT
            message += "; grant this user the right to write the file and its folder: SQLite needs it to read, too"
        if "no such table" in message:
            message += f"; {NO_TABLE}"
        return Failure(error_class, cause, f"{self.address.database}: {message}")


def _without_decimals(number: int | Decimal) -> int | str:
    """Return a number as SQLite keeps all its digits: an integer, or text."""
    if isinstance(number, int):
        return number if -_INT64 <= number < _INT64 else str(number)
    if number.as_tuple().exponent == 0 and -_INT64 <= number < _INT64:
        return int(number)
    return format(number, "f")


def _time_ms(stored: Any) -> Any:
    """Return the time of a text in ms. Another value stays as it is: an error of SQLite could not name it."""
    with contextlib.suppress(TypeError, ValueError):
        milliseconds = time_ms(stored)
        if milliseconds != NOT_A_TIME:
            return milliseconds
    return stored


Number = int | str
"""A decimal in SQLite."""

FUNCTION_FAILED = "user-defined function raised exception"
_EXACT = Context(prec=2 * DIGITS)


def _sum(stored: Number | None, added: Number | None) -> Number | None:
    """Add two numbers. Raises OverflowError for more digits than a decimal has in other databases."""
    if stored is None or added is None:
        return None
    total = _EXACT.add(Decimal(stored), Decimal(added))
    if len(total.as_tuple().digits) > DIGITS:
        raise OverflowError
    return _without_decimals(total)


def _choice(choose: Callable[..., Number]) -> Callable[[Number | None, Number | None], Number | None]:
    def chosen(stored: Number | None, added: Number | None) -> Number | None:
        return None if stored is None or added is None else choose(stored, added, key=Decimal)

    return chosen


FUNCTIONS: Mapping[str, Callable[[Number | None, Number | None], Number | None]] = {
    "sum": _sum,
    "min": _choice(min),
    "max": _choice(max),
}
"""Functions that merge decimals, by kind of merge."""
