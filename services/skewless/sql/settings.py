"""Settings of a connection to a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from skewless.errors import unknown
from skewless.settings_base import InvalidSettingsError, SettingsModel

Dialect = Literal["postgresql", "mysql", "sqlite"]

DEFAULT_PORTS: dict[str, int | None] = {"postgresql": 5432, "mysql": 3306, "sqlite": None}
"""Default port of each dialect. The dialects are the schemes of the URL."""


class DatabaseAddress(NamedTuple):
    """Parts of the URL of a database."""

    dialect: Dialect
    host: str
    port: int
    database: str
    """Name of the database; for SQLite the absolute path of its file."""

    def __str__(self) -> str:
        return self.database if self.dialect == "sqlite" else f"{self.host}:{self.port}/{self.database}"


def _parse_url(url: str) -> DatabaseAddress:
    """Return the parts of a URL. Raises ValueError with the remedy; the message never contains the URL."""
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError as error:
        raise ValueError(f"is not a valid URL ({error}): write postgresql://host:5432/database") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(unknown("scheme", parts.scheme or "(none)", DEFAULT_PORTS))
    if parts.username is not None or parts.password is not None:
        raise ValueError("has credentials: they belong in sink.username and sink.password")
    if parts.query or parts.fragment:
        raise ValueError("has parameters after the name of the database: remove them, they have settings of their own")
    if parts.scheme == "sqlite":
        return _sqlite_address(parts)
    database = unquote(parts.path.removeprefix("/"))
    if not parts.hostname or not database or "/" in database:
        raise ValueError(f"must name a host and a database: {parts.scheme}://host/database")
    dialect: Dialect = "postgresql" if parts.scheme == "postgresql" else "mysql"
    return DatabaseAddress(dialect, parts.hostname, port or DEFAULT_PORTS[dialect] or 0, database)


def _sqlite_address(parts: SplitResult) -> DatabaseAddress:
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path.endswith("/"):
        raise ValueError("must name a file by its absolute path: sqlite:///folder/results.db")
    return DatabaseAddress("sqlite", "", 0, str(Path(path)))


def _valid_url(url: str) -> str:
    _parse_url(url)
    return url


class DatabaseTlsSettings(SettingsModel):
    """Certificate files (PEM) of a connection to a database."""

    ca: str | None = Field(None, description="File of the authorities that sign the server's certificate.")
    certificate: str | None = Field(None, description="File of this client's certificate.")
    key: str | None = Field(None, description="File of this client's private key.")
    verify: Literal["full", "ca", "none"] = Field(
        "full",
        description="full: the certificate must be valid and name the host; ca: it must be valid; none: no check.",
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> DatabaseTlsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or none")
        if self.ca is None and self.verify != "none":
            raise InvalidSettingsError(f"ca: is required to verify the server (verify: {self.verify})")
        return self


class DatabaseSettings(SettingsModel):
    """Connection to a database."""

    url: Annotated[str, AfterValidator(_valid_url)] = Field(
        description="postgresql://host:5432/database, mysql://host:3306/database (MariaDB and MySQL), or "
        "sqlite:///folder/file.db with an absolute path. Without credentials.",
    )
    username: str | None = Field(None, min_length=1, description="User name. Not for SQLite.")
    password: SecretStr | None = Field(
        None, description="Password. Set it in the environment (SKEWLESS__SINK__PASSWORD) rather than in a file."
    )
    tls: DatabaseTlsSettings | None = Field(
        None, description="TLS of the connection. Without it, a connection to another host is not encrypted."
    )
    statement_timeout_s: float = Field(
        30.0, ge=0.1, le=3600, description="Time limit of a statement in seconds. The transaction is then repeated."
    )
    lock_timeout_s: float = Field(
        10.0, ge=0.1, le=3600, description="Time to wait for a lock in seconds. The transaction is then repeated."
    )

    @model_validator(mode="after")
    def _credentials_fit(self) -> DatabaseSettings:
        if self.address.dialect == "sqlite":
            for name in ("username", "password", "tls"):
                if getattr(self, name) is not None:
                    raise InvalidSettingsError(f"{name}: a file of SQLite has no {name}; remove it")
        elif self.username is None:
            raise InvalidSettingsError("username: is required for a server")
        return self

    @property
    def address(self) -> DatabaseAddress:
        """The parts of the URL."""
        return _parse_url(self.url)
