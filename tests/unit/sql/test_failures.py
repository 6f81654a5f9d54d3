"""Failures of drivers: which ones are repeated, and which end the process."""

from __future__ import annotations

import ssl

import psycopg
import pymysql
import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.sql.database import Database
from skewless.sql.dialects import database_of
from skewless.sql.errors import ErrorClass

SERVER = 'connection to server at "127.0.0.1", port 5432 failed: '
NO_ENTRY = 'FATAL:  no pg_hba.conf entry for host "127.0.0.1", user "u", database "shop", no encryption'
CLOSED = """\
server closed the connection unexpectedly
\tThis probably means the server terminated abnormally
\tbefore or while processing the request."""


def database(scheme: str) -> Database:
    """Return a database that is not connected."""
    sink = {"url": f"{scheme}://db/shop", "username": "u"}
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "sink": sink})
    assert settings.sink is not None
    return database_of(settings.sink, settings.sink_table())


def outcome(scheme: str, error: Exception) -> tuple[ErrorClass, str]:
    failure = database(scheme).failure_of(error)
    return failure.error_class, failure.cause


@pytest.mark.parametrize(
    "message",
    [
        "consuming input failed: SSL error: unexpected eof while reading",
        "consuming input failed: SSL SYSCALL error: EOF detected",
        "consuming input failed: SSL connection has been closed unexpectedly",
        f"consuming input failed: {CLOSED}\nSSL SYSCALL error: Connection reset by peer",
        "sending query failed: SSL SYSCALL error: Broken pipe",
        "the connection is lost",
        "the connection is closed",
        f"connection failed: {SERVER}SSL error: unexpected eof while reading",
        f"connection failed: {SERVER}SSL error: unexpected eof while reading\n{SERVER}{CLOSED}",
        f"connection failed: {SERVER}{CLOSED}\nSSL SYSCALL error: Connection reset by peer",
        f"connection failed: {SERVER}SSL SYSCALL error: EOF detected",
        f"connection failed: {SERVER}SSL error: unexpected eof while reading\n{SERVER}{NO_ENTRY}",
        f"connection failed: {SERVER}FATAL:  the database system is starting up",
        f"connection failed: {SERVER}Connection refused",
        'connection failed: connection to server at "db.certificate.example", port 5432 failed: Connection refused',
    ],
)
def test_failure_of_postgresql_connection_that_is_cut_is_unavailable(message: str) -> None:
    assert outcome("postgresql", psycopg.OperationalError(message)) == (ErrorClass.UNAVAILABLE, "connection")


@pytest.mark.parametrize(
    "reason",
    [
        'FATAL:  password authentication failed for user "u"',
        "fe_sendauth: no password supplied",
        'FATAL:  database "shop" does not exist',
        'FATAL:  permission denied for database "shop"',
        'FATAL:  role "u" is not permitted to log in',
        NO_ENTRY,
        "FATAL:  connection requires a valid client certificate",
        "server does not support SSL, but SSL was required",
        "SSL error: certificate verify failed",
        "SSL error: tlsv1 alert protocol version\nThis may indicate that the server does not support any SSL protocol",
        "SSL error: sslv3 alert handshake failure",
        "SSL error: tlsv13 alert certificate required",
        "SSL error: unsupported protocol",
        "SSL error: wrong version number",
        'server certificate for "127.0.0.1" (and 1 other name) does not match host name "localhost"',
        'root certificate file "/ca.pem" does not exist\nEither provide the file, or change sslmode.',
        'could not read root certificate file "/ca.pem": no certificate or crl found',
        'could not load private key file "/key.pem": key values mismatch',
        'certificate present, but not private key file "/key.pem"',
        'private key file "/key.pem" has group or world access; file must have permissions u=rw (0600) or less',
    ],
)
def test_failure_of_postgresql_login_that_is_refused_is_permanent(reason: str) -> None:
    error = psycopg.OperationalError(f"connection failed: {SERVER}{reason}")
    assert outcome("postgresql", error) == (ErrorClass.PERMANENT, "login")
    assert "sink.tls" in database("postgresql").failure_of(error).message


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("25P03", (ErrorClass.UNAVAILABLE, "connection")),
        ("25P04", (ErrorClass.UNAVAILABLE, "connection")),
        ("25006", (ErrorClass.UNAVAILABLE, "read_only")),
        ("57P01", (ErrorClass.UNAVAILABLE, "shutdown")),
        ("57014", (ErrorClass.TRANSIENT, "statement_timeout")),
        ("25P02", (ErrorClass.PERMANENT, "refused")),
        ("42501", (ErrorClass.PERMANENT, "refused")),
    ],
)
def test_failure_of_postgresql_with_a_state_is_that_of_the_state(state: str, expected: tuple[ErrorClass, str]) -> None:
    assert outcome("postgresql", psycopg.errors.lookup(state)("refused by the server")) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1047, (ErrorClass.UNAVAILABLE, "shutdown")),
        (1053, (ErrorClass.UNAVAILABLE, "shutdown")),
        (2013, (ErrorClass.UNAVAILABLE, "connection")),
        (1213, (ErrorClass.TRANSIENT, "deadlock")),
        (1045, (ErrorClass.PERMANENT, "refused")),
        (1292, (ErrorClass.VALUE, "value")),
        (1525, (ErrorClass.VALUE, "value")),  # the same of MySQL in a WHERE
    ],
)
def test_failure_of_mysql_with_a_number_is_that_of_the_number(number: int, expected: tuple[ErrorClass, str]) -> None:
    assert outcome("mysql", pymysql.err.OperationalError(number, "refused by the server")) == expected


def failed_to_connect(cause: OSError) -> pymysql.err.OperationalError:
    """Return the error of PyMySQL for a connection that fails."""
    error = pymysql.err.OperationalError(2003, f"Can't connect to MySQL server on 'db' ({cause})")
    error.original_exception = cause  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize("kind", [ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ConnectionResetError])
def test_failure_of_mysql_handshake_that_is_cut_is_unavailable(kind: type[OSError]) -> None:
    cause = kind(8, "EOF occurred in violation of protocol")
    assert outcome("mysql", failed_to_connect(cause)) == (ErrorClass.UNAVAILABLE, "connection")
    assert outcome("mysql", cause) == (ErrorClass.UNAVAILABLE, "connection")


@pytest.mark.parametrize("kind", [ssl.SSLError, ssl.SSLCertVerificationError])
def test_failure_of_mysql_handshake_that_is_refused_is_permanent(kind: type[ssl.SSLError]) -> None:
    cause = kind(1, "certificate verify failed")
    assert outcome("mysql", failed_to_connect(cause)) == (ErrorClass.PERMANENT, "tls")
    assert outcome("mysql", cause) == (ErrorClass.PERMANENT, "tls")
