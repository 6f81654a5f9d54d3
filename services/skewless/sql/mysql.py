"""MariaDB and MySQL, by PyMySQL."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from skewless.sql.database import CONNECT_S, Database, DatabaseAddress, load_driver
from skewless.sql.errors import GRANT, NO_TABLE, ErrorClass, Failure
from skewless.sql.rows import Row
from skewless.sql.settings import DatabaseSettings
from skewless.sql.statements import Dialect
from skewless.sql.table import DIGITS, ResultTable

LOCK = "skewless schema"
"""Name of the lock of `begin_alone`."""

MODE = "ANSI_QUOTES,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""Mode of the session: names in double quotes, and an error instead of a changed value."""

STATEMENT_CHARACTERS = 1_000_000
"""Characters of the rows of a statement. A server accepts 16 MB by default."""

FOUND_ROWS = 2
"""Protocol flag CLIENT_FOUND_ROWS: an UPDATE counts the rows that it finds, even if their values do not change."""

_C = ErrorClass


def _table(**codes: tuple[ErrorClass, tuple[int, ...]]) -> Mapping[int, tuple[ErrorClass, str]]:
    return {number: (error_class, cause) for cause, (error_class, numbers) in codes.items() for number in numbers}


_BY_NUMBER = _table(
    connection=(
        _C.UNAVAILABLE,
        (0, 2002, 2003, 2005, 2006, 2013, 2014, 2055, 1152, 1158, 1159, 1160, 1161, 1927, 4031),
    ),
    shutdown=(_C.UNAVAILABLE, (1047, 1053, 1077, 1079, 3169)),  # 1047: a node of Galera without its cluster
    resources=(_C.UNAVAILABLE, (3, 28, 1021, 1037, 1038, 1040, 1041, 1114, 1129, 1135, 1203, 1206, 1226, 1030)),
    read_only=(_C.UNAVAILABLE, (1290, 1792, 1836)),
    deadlock=(_C.TRANSIENT, (1213,)),
    lock_timeout=(_C.TRANSIENT, (1205, 3572)),
    statement_timeout=(_C.TRANSIENT, (1317, 1969, 3024)),
    serialization=(_C.TRANSIENT, (1020,)),
    value=(_C.VALUE, (1048, 1264, 1265, 1292, 1300, 1366, 1367, 1406, 1411, 1441, 1525, 1690)),
    duplicate=(_C.DUPLICATE, (1062,)),
)
"""Classes of errors by the number of the server or of the client."""
_REMEDIES = {
    1044: "correct sink.url, or grant the user the rights (`skewless sink check` lists what is missing)",
    1045: "correct sink.username or sink.password",
    1049: "create the database, or correct sink.url",
    1142: GRANT,
    1143: GRANT,
    1146: NO_TABLE,
    1054: "correct the table (`skewless sink check` lists the differences)",
    2026: "correct sink.tls",
}


_TEXT = " CHARACTER SET utf8mb4 COLLATE "
MARIADB = Dialect(
    types={
        "time": "datetime(3)",
        "id": "binary(16)",
        "text": "mediumtext",
        "integer": "bigint",
        "decimal": f"decimal({DIGITS},{{decimals}})",
        "double": "double",
        "boolean": "tinyint(1)",
        "json": "mediumtext",
        "bytes": "longblob",
        "name": "varchar(249) CHARACTER SET ascii COLLATE ascii_bin",
        "number": "integer",
    },
    text_attributes=f"{_TEXT}utf8mb4_nopad_bin",
    time_ms="TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}) DIV 1000",
    assignment="{name} = IF(VALUES(revision) >= revision, VALUES({name}), {name})",
    stored="{name}",
    added="VALUES({name})",
    names={
        "table_options": " ENGINE = InnoDB",
        "keyed_table_options": " ENGINE = InnoDB",
        "index_in_table": ',\n    INDEX {key_index} ("key"(64))',
        "index_of_table": "",
    },
    templates={
        "upsert": "INSERT INTO {table} ({columns}) {rows} ON DUPLICATE KEY UPDATE {assignments}",
        "add": "INSERT INTO {table} ({columns}) {rows} ON DUPLICATE KEY UPDATE {additions}",
        "page_select": """\
SELECT key_id, {window_start_ms}, {window_end_ms}, {other_columns}
FROM {table}
WHERE window_start > %s OR (window_start = %s AND key_id > %s)
ORDER BY window_start, key_id
LIMIT %s""",
        # For GROUP BY, MariaDB steps from window to window in the index. In a subquery it reads all entries.
        "windows_select": """\
SELECT {window_start_ms}, (
    SELECT {window_end_ms} FROM {table} AS _same WHERE _same.window_start = {table}.window_start ORDER BY key_id LIMIT 1
)
FROM {table}
WHERE window_start >= %s
GROUP BY window_start
ORDER BY window_start
LIMIT 500""",
        # MariaDB gives integers a display width.
        "columns_select": """\
SELECT column_name, IF(LEFT(column_type, 7) = 'bigint(', 'bigint', column_type)
FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = %s""",
        "required_select": """\
SELECT column_name
FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = %s AND is_nullable = 'NO' AND column_default IS NULL AND extra = ''""",
        "key_select": """\
SELECT column_name
FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = %s AND index_name = 'PRIMARY'""",
    },
    missing="is missing, or this user has no right on it",
    preamble=(
        "-- For MariaDB. MySQL has no collation utf8mb4_nopad_bin: write utf8mb4_0900_bin instead.\n"
        "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES');"
    ),
)
MYSQL = replace(MARIADB, text_attributes=f"{_TEXT}utf8mb4_0900_bin")


class MysqlDatabase(Database):
    """A connection to MariaDB or MySQL."""

    default_port: ClassVar[int] = 3306
    dialect: ClassVar[Dialect] = MARIADB

    def __init__(self, settings: DatabaseSettings, address: DatabaseAddress, table: ResultTable) -> None:
        super().__init__(settings, address, table)
        self._driver: Any = load_driver("pymysql", "mysql")
        self.errors = (self._driver.err.Error, UnicodeError, OSError)
        self._connection: Any = None
        self._is_locked = False
        """Whether the session has the lock of `begin_alone`."""

    def connect(self) -> None:
        """Connect, with the time limits of the settings."""
        settings, address = self.settings, self.address
        self._connection = self._driver.connect(
            host=address.host,
            port=address.port,
            database=address.database,
            user=settings.username,
            password=settings.password.get_secret_value() if settings.password else "",
            charset="utf8mb4",
            autocommit=True,  # `begin` and `commit` are statements
            client_flag=FOUND_ROWS,
            connect_timeout=round(CONNECT_S),
            # The server ends a statement first. This limit is for a server that no longer answers at all.
            read_timeout=settings.statement_timeout_s + CONNECT_S,
            write_timeout=settings.statement_timeout_s + CONNECT_S,
            ssl=self._tls_context(),
        )
        ((version,),) = self.query("SELECT VERSION()")
        mariadb = "mariadb" in version.lower()
        self.statements = replace(self.statements, dialect=MARIADB if mariadb else MYSQL)
        lock_s = max(1, round(settings.lock_timeout_s))
        self.execute(
            "SET SESSION sql_mode = %s, time_zone = '+00:00', innodb_lock_wait_timeout = %s, lock_wait_timeout = %s",
            (MODE, lock_s, lock_s),
        )
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")  # fewer locks on gaps, fewer deadlocks
        if mariadb:  # MySQL limits SELECT statements only
            self.execute("SET SESSION max_statement_time = %s", (settings.statement_timeout_s,))

    def _tls_context(self) -> ssl.SSLContext | None:
        tls = self.settings.tls
        if tls is None:
            return None
        context = ssl.create_default_context(cafile=tls.ca)
        context.check_hostname = tls.verify == "full"
        context.verify_mode = ssl.CERT_NONE if tls.verify == "none" else ssl.CERT_REQUIRED
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
        return context

    def close(self) -> None:
        """Discard the connection."""
        if self._connection is not None:
            connection, self._connection, self._is_locked = self._connection, None, False
            if connection.open:
                connection._force_close()  # noqa: SLF001 - `close` sends a message to a server that may not answer

    def _cursor(self) -> Any:
        if self._connection is None:
            raise self._driver.err.OperationalError(2006, "the connection is closed")
        return self._connection.cursor()

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Execute a statement."""
        with self._cursor() as cursor:
            return int(cursor.execute(statement, tuple(parameters) or None))

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each sequence of parameters."""
        with self._cursor() as cursor:
            cursor.executemany(statement, rows)

    def upsert(self, rows: Sequence[Row]) -> None:
        """Insert or replace rows, in statements of about STATEMENT_CHARACTERS."""
        # `executemany` and `mogrify` take a multiple of the client's CPU time.
        parameters = f"({', '.join(['%s'] * len(self.statements.table.columns))})"
        insert, _, update = self.statements.store.partition(parameters)
        literals = self._driver.converters.encoders  # right for this session: MODE keeps escapes by backslash
        with self._cursor() as cursor:
            written: list[str] = []
            characters = 0
            for row in rows:
                text = ",".join([literals[type(value)](value, None) for value in row])
                if written and characters + len(text) > STATEMENT_CHARACTERS:
                    cursor.execute(f"{insert}({'),('.join(written)}){update}")
                    written, characters = [], 0
                written.append(text)
                characters += len(text)
            cursor.execute(f"{insert}({'),('.join(written)}){update}")

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._cursor() as cursor:
            cursor.execute(statement, tuple(parameters) or None)
            return list(cursor.fetchall())

    def begin_snapshot(self) -> None:
        """Begin a transaction with a snapshot. The session itself reads what is committed at each statement."""
        self.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def begin_alone(self) -> None:
        """Begin a transaction with a lock of the session. Statements that change the schema commit at once."""
        ((locked,),) = self.query("SELECT GET_LOCK(%s, %s)", (LOCK, self.settings.lock_timeout_s))
        if locked != 1:
            raise self._driver.err.OperationalError(1205, "another process creates tables or stores its first rows")
        self._is_locked = True
        self.begin()

    def commit(self) -> None:
        """Commit the transaction, and release its lock."""
        super().commit()
        self._unlock()

    def rollback(self) -> None:
        """Roll the transaction back, and release its lock."""
        super().rollback()
        self._unlock()

    def _unlock(self) -> None:
        if self._is_locked:
            self.query("SELECT RELEASE_LOCK(%s)", (LOCK,))
            self._is_locked = False

    def failure_of(self, error: Exception) -> Failure:
        """Classify an error by its number."""
        if isinstance(error, UnicodeError):
            return Failure(_C.VALUE, "value", str(error))
        if _is_refused_tls(error):
            return Failure(_C.PERMANENT, "tls", f"{error}; {_REMEDIES[2026]}")
        if isinstance(error, OSError):
            return Failure(_C.UNAVAILABLE, "connection", str(error))
        number = error.args[0] if error.args and isinstance(error.args[0], int) else None
        message = " ".join(str(error.args[1] if len(error.args) > 1 else error).split())
        if number == 2003 and _is_refused_tls(getattr(error, "original_exception", None)):
            return Failure(_C.PERMANENT, "tls", f"{message}; {_REMEDIES[2026]}")
        if number is None:
            interface = isinstance(error, self._driver.err.InterfaceError)
            return Failure(*((_C.UNAVAILABLE, "connection") if interface else (_C.PERMANENT, "driver")), message)
        error_class, cause = _BY_NUMBER.get(number, (_C.PERMANENT, "refused"))
        remedy = _REMEDIES.get(number)
        return Failure(error_class, cause, f"{message}; {remedy}" if remedy else message)


def _is_refused_tls(error: Exception | None) -> bool:
    # A server that restarts ends a handshake.
    cut = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
    return isinstance(error, ssl.SSLError) and not cut
