"""PostgreSQL, by psycopg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from skewless.sql.database import CONNECT_S, Database, DatabaseAddress, load_driver
from skewless.sql.errors import GRANT, NO_TABLE, ErrorClass, Failure
from skewless.sql.rows import Row
from skewless.sql.settings import DatabaseSettings
from skewless.sql.statements import Dialect
from skewless.sql.table import DIGITS, ResultTable

if TYPE_CHECKING:
    import psycopg

LOCK = 0x736B6577
"""Key of the advisory lock of `begin_alone`."""

TLS_MODES = {"full": "verify-full", "ca": "verify-ca", "none": "require"}

_C = ErrorClass
_BY_STATE: Mapping[str, tuple[ErrorClass, str]] = {
    "40001": (_C.TRANSIENT, "serialization"),
    "40P01": (_C.TRANSIENT, "deadlock"),
    "55P03": (_C.TRANSIENT, "lock_timeout"),
    "57014": (_C.TRANSIENT, "statement_timeout"),
    "25006": (_C.UNAVAILABLE, "read_only"),
    "25P03": (_C.UNAVAILABLE, "connection"),  # idle in a transaction for too long: the server has ended the session
    "25P04": (_C.UNAVAILABLE, "connection"),  # the same for the whole transaction
    "23502": (_C.VALUE, "value"),  # NULL: a result from before its aggregate was added
    "23505": (_C.DUPLICATE, "duplicate"),
}
_BY_CLASS: Mapping[str, tuple[ErrorClass, str]] = {
    "08": (_C.UNAVAILABLE, "connection"),
    "57": (_C.UNAVAILABLE, "shutdown"),
    "53": (_C.UNAVAILABLE, "resources"),
    "58": (_C.UNAVAILABLE, "system"),
    "22": (_C.VALUE, "value"),
    "54": (_C.VALUE, "value"),
}
"""Classes of errors by the first two characters of SQLSTATE (PostgreSQL's documentation, appendix A)."""
_REMEDIES: Mapping[str, str] = {
    "42501": GRANT,
    "42P01": NO_TABLE,
    "42703": "correct the table (`skewless sink check` lists the differences)",
    "42804": "correct the table (`skewless sink check` lists the differences)",
    "42P10": "the table lacks its primary key (`skewless sink check` lists the differences)",
    "3F000": "create the schema, or correct the user's search_path",
}
_REFUSED_LOGINS = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
    "is not permitted to log in",
    "certificate ",  # not verified, of another host, or of a file that libpq cannot read; no part of a name
    "valid client certificate",
    "private key file",
    "SSL was required",
    " alert ",  # by which a server refuses the client's version, ciphers or certificate
    "protocol version",
    "unsupported protocol",
    "wrong version number",
    "could not create SSL context",
)
"""Parts of the messages of logins that fail permanently. libpq reports no SQLSTATE for them."""
_CUT_TLS = (
    "unexpected eof while reading",
    "SSL SYSCALL error",
    "SSL connection has been closed unexpectedly",
)
"""Parts of the messages of connections that end during the handshake of TLS, as when a server restarts.

Without sink.tls, libpq then tries it without TLS. The message contains both, and the server may refuse the latter.
"""


POSTGRESQL = Dialect(
    types={
        "time": "timestamp with time zone",
        "id": "bytea",
        "text": "text",
        "integer": "bigint",
        "decimal": f"numeric({DIGITS},{{decimals}})",
        "double": "double precision",
        "boolean": "boolean",
        "json": "text",
        "bytes": "bytea",
        "name": 'text COLLATE "C"',
        "number": "integer",
    },
    text_attributes=' COLLATE "C"',
    time_ms="(extract(epoch FROM {}) * 1000)::bigint",
    rows="SELECT {columns} FROM skewless_batch",
    # A b-tree takes no long keys. A hash index takes longer for each further window of a key.
    names={"index_of_table": "CREATE INDEX IF NOT EXISTS {key_index} ON {table} (key_id, window_start);\n"},
    templates={
        "temporary": "CREATE TEMPORARY TABLE skewless_batch ({temporary_definitions}) ON COMMIT DELETE ROWS",
        "columns_select": """\
SELECT attname::text, format_type(atttypid, atttypmod)
FROM pg_attribute
WHERE attrelid = to_regclass(quote_ident(%s)) AND attnum > 0 AND NOT attisdropped""",
        "required_select": """\
SELECT attname::text
FROM pg_attribute
WHERE attrelid = to_regclass(quote_ident(%s)) AND attnum > 0 AND NOT attisdropped AND attnotnull AND NOT atthasdef
    AND attidentity = ''""",
        "key_select": """\
SELECT attname::text
FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = to_regclass(quote_ident(%s)) AND indisprimary""",
    },
    preamble="-- A table of 0.6.2 and earlier has another index: docs/how-to/sql.md says how to replace it.",
)


class PostgresqlDatabase(Database):
    """A connection to PostgreSQL."""

    default_port: ClassVar[int] = 5432
    dialect: ClassVar[Dialect] = POSTGRESQL
    reserved_columns: ClassVar[frozenset[str]] = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})

    def __init__(self, settings: DatabaseSettings, address: DatabaseAddress, table: ResultTable) -> None:
        super().__init__(settings, address, table)
        self._driver: Any = load_driver("psycopg", "postgresql")
        self.errors = (self._driver.Error, UnicodeError)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._batch_used = False
        """Whether the temporary table has rows of this transaction."""

    def connect(self) -> None:
        """Connect, with the time limits of the settings."""
        settings, address = self.settings, self.address
        password = settings.password.get_secret_value() if settings.password else None
        limits = {
            "statement_timeout": settings.statement_timeout_s,
            "lock_timeout": settings.lock_timeout_s,
            "idle_in_transaction_session_timeout": settings.statement_timeout_s,
        }
        options = " ".join(f"-c {name}={round(seconds * 1000)}" for name, seconds in limits.items())
        tls = settings.tls
        files: dict[str, str | None] = {}
        if tls is not None:
            # With a file of authorities, libpq verifies the certificate also with sslmode=require.
            ca = None if tls.verify == "none" else tls.ca
            files = {"sslrootcert": ca, "sslcert": tls.certificate, "sslkey": tls.key}
        self._connection = self._driver.connect(
            host=address.host,
            port=address.port,
            dbname=address.database,
            user=settings.username,
            password=password,
            connect_timeout=round(CONNECT_S),
            application_name="skewless",
            options=f"{options} -c timezone=UTC -c client_encoding=UTF8 -c extra_float_digits=1",
            tcp_user_timeout=round(settings.statement_timeout_s * 1000),
            sslmode="prefer" if tls is None else TLS_MODES[tls.verify],
            autocommit=True,  # `begin` and `commit` are statements
            **files,
        )

    def prepare_upserts(self) -> None:
        """Create the temporary table of this session."""
        self.execute(self.statements["temporary"])

    def close(self) -> None:
        """Discard the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    @property
    def _open_connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None:
            raise cast("Exception", self._driver.OperationalError("the connection is closed"))
        return self._connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        """Execute a statement."""
        return self._open_connection.execute(cast("Any", statement), parameters or None).rowcount

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each sequence of parameters."""
        with self._open_connection.cursor() as cursor:
            cursor.executemany(cast("Any", statement), rows)

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._open_connection.execute(cast("Any", statement), parameters or None).fetchall()

    def begin(self) -> None:
        """Begin a transaction. The temporary table is empty after each one."""
        super().begin()
        self._batch_used = False

    def begin_snapshot(self) -> None:
        """Begin a transaction whose snapshot is that of its first statement."""
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def upsert(self, rows: Sequence[Row]) -> None:
        """Copy the rows to a temporary table, and insert or replace them from there."""
        # COPY takes an eighth of the client's CPU time of arrays in a statement.
        if self._batch_used:
            self.execute("TRUNCATE skewless_batch")
        self._batch_used = True
        with self._open_connection.cursor() as cursor:
            with cursor.copy("COPY skewless_batch FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(cast("Any", self.statements.store))

    def begin_alone(self) -> None:
        """Begin a transaction with a lock that ends with it."""
        self.begin()
        # Otherwise, the statement that waits for the lock could set what all later ones see.
        self.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))

    def failure_of(self, error: Exception) -> Failure:
        """Classify an error by its SQLSTATE."""
        state = getattr(error, "sqlstate", None) or ""
        message = " ".join(str(error).split())
        if not state:
            return self._failure_without_state(error, message)
        error_class, cause = _BY_STATE.get(state) or _BY_CLASS.get(state[:2], (_C.PERMANENT, "refused"))
        if constraint := getattr(getattr(error, "diag", None), "constraint_name", None):
            message = f"{message} (constraint {constraint})"
        remedy = _REMEDIES.get(state)
        return Failure(error_class, cause, f"{message}; {remedy}" if remedy else message)

    def _failure_without_state(self, error: Exception, message: str) -> Failure:
        if isinstance(error, self._driver.DataError | UnicodeError):
            return Failure(_C.VALUE, "value", message)
        if _is_refused_login(message):
            remedy = "correct sink.url, sink.username, sink.password or sink.tls"
            return Failure(_C.PERMANENT, "login", f"{message}; {remedy}")
        if isinstance(error, self._driver.OperationalError | self._driver.InterfaceError):
            return Failure(_C.UNAVAILABLE, "connection", message)
        return Failure(_C.PERMANENT, "driver", message)


def _is_refused_login(message: str) -> bool:
    # libpq names TLS also in the messages of connections that are lost. Only psycopg's own text begins like this.
    connecting = message.startswith(("connection failed:", "connection is bad:"))
    return connecting and _contains(message, _REFUSED_LOGINS) and not _contains(message, _CUT_TLS)


def _contains(message: str, parts: Sequence[str]) -> bool:
    return any(part in message for part in parts)
