"""Shared parts of logins to different servers: tokens of an identity provider, and files of certificates."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from skewless.errors import ConfigurationError
from skewless.settings_base import SettingsModel

SYSTEM_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat, Fedora
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS
)
"""Files in which systems have the authorities that they trust. The first one that exists is used."""


class TokenLoginSettings(SettingsModel):
    """Login with tokens of an identity provider: OIDC with the grant type client credentials."""

    token_endpoint_url: str = Field(
        pattern=r"^https?://[^@\s]+$", description="Address of the provider at which this client gets its tokens."
    )
    client_id: str = Field(min_length=1, description="Id of this client.")
    client_secret: SecretStr = Field(
        min_length=1, description="Secret of this client. Set it in the environment rather than in a file."
    )
    scope: str | None = Field(None, min_length=1, description="Scope of the tokens, if the provider requires one.")
    ca: str | None = Field(
        None,
        description="File of the authorities (PEM) that sign the provider's certificate. Unset: those of the system.",
    )

    @field_validator("token_endpoint_url")
    @classmethod
    def _has_host(cls, url: str) -> str:
        check_host(url)
        return url


def check_host(address: str) -> None:
    """Raise ValueError if an address of http or https, without a login, has no host name or an invalid host or port."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"{address} has an invalid host or port; write an address such as https://host:8081") from None
    if not host or any(map(str.isspace, address)):
        raise ValueError(f"{address} has no valid host name; write an address such as https://host:8081")


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is that of this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def system_authorities() -> str | None:
    """Return the file of the authorities that the system trusts; None if it has none."""
    return next(filter(os.path.exists, SYSTEM_AUTHORITIES), None)


def require_readable(section: str, files: Mapping[str, str | None], folders: Collection[str] = ()) -> None:
    """Raise ConfigurationError with each file of a section of the settings that cannot be read.

    `files` has the paths by setting, None for those that are not set. Those of `folders` may be folders.
    """
    if problems := [
        f"{section}.{name}: {path}: cannot be read: {reason}"
        for name, path in files.items()
        if path is not None and (reason := _unreadable(path, may_be_folder=name in folders))
    ]:
        raise ConfigurationError(*problems)


def _unreadable(path: str, *, may_be_folder: bool) -> str:
    """Return the reason for which a file cannot be read; an empty string if it can be read."""
    found = Path(path)
    try:
        if may_be_folder and found.is_dir():
            next(found.iterdir(), None)
        else:
            found.open("rb").close()
    except OSError as error:
        return error.strerror or str(error)
    return ""
