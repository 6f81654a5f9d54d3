"""Failures of drivers: which ones are repeated, and which end the process."""

from __future__ import annotations

import psycopg
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
