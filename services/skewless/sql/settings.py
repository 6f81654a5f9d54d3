"""Settings of a connection to a database."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from skewless.settings_base import InvalidSettingsError, SettingsModel


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

    url: str = Field(
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
        30.0,
        ge=0.1,
        le=120,
        description="Time limit of a statement in seconds, at most half of metrics.liveness_timeout_s. The transaction "
        "is then repeated.",
    )
    lock_timeout_s: float = Field(
        10.0,
        ge=0.1,
        le=120,
        description="Time to wait for a lock in seconds, at most half of metrics.liveness_timeout_s. The transaction "
        "is then repeated.",
    )
