"""Settings of the schema registry, for the records that a pipeline reads and for those that it writes."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from skewless.login_settings import TokenLoginSettings, check_host
from skewless.settings_base import InvalidSettingsError, SettingsModel

REGISTRY = "schema registry"
"""Name of the server in reports of what a process waits for."""
ResultFormat = Annotated[
    Literal["json", "avro", "json_schema", "protobuf"],
    Field(
        description="Format of results in the topic. The others have a schema, which is generated from these settings, "
        "and which the stage registers. They need `registry`."
    ),
]
Subject = Annotated[
    Literal["topic", "record", "topic_record"],
    Field(
        description="Subject of the schema: the topic with `-value`, the name of the record, or both. Serializers call "
        "these strategies TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy."
    ),
]


class RegistryOAuthBearerSettings(TokenLoginSettings):
    """Login with tokens of an identity provider: OIDC with the grant type client credentials."""

    logical_cluster: str = Field("", description="Id of the registry's cluster, for registries that serve several.")
    identity_pool: str | None = Field(None, min_length=1, description="Id of the identity pool, if there is one.")


class RegistryTlsSettings(SettingsModel):
    """Certificate files (PEM). Without `ca`, the certificate authorities of the system are trusted."""

    ca: str | None = Field(None, description="File of the authorities that sign the registry's certificate.")
    certificate: str | None = Field(None, description="File of this client's certificate, for mutual TLS.")
    key: str | None = Field(None, description="File of this client's private key.")
    key_password: SecretStr | None = Field(None, description="Password of the private key.")

    @model_validator(mode="after")
    def _certificate_has_key(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or none")
        return self


class RegistrySettings(SettingsModel):
    """Connection to a schema registry with the API of Confluent, which others have, too.

    For records in the formats `avro`, `protobuf` and `json_schema`.
    """

    url: str = Field(
        description="Address of the API, such as `https://registry:8081`, or `https://registry:8080/apis/ccompat/v7` "
        "for Apicurio Registry. Several addresses of one registry are separated by commas."
    )
    username: str | None = Field(None, min_length=1, description="User name, with `password`.")
    password: SecretStr | None = Field(None, description="Password. Set it in the environment rather than in a file.")
    oauthbearer: RegistryOAuthBearerSettings | None = Field(
        None, description="Login with tokens instead of a user name."
    )
    tls: RegistryTlsSettings | None = Field(None, description="Only with an address of https.")
    allow_unencrypted: bool = Field(
        False,
        description="Whether the login may be sent without TLS, so that others on the network may read it.",
    )
    connect_timeout_s: float = Field(
        15.0, gt=0, le=600, description="Time to wait for an answer before a command fails (exit 3)."
    )
    request_timeout_s: float = Field(10.0, gt=0, le=600, description="Time limit of one request, which is repeated.")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the registry."""
        return tuple(address.strip() for address in self.url.split(","))

    @field_validator("url")
    @classmethod
    def _plain_addresses(cls, url: str) -> str:
        # Before the addresses are separated: a password may contain a comma, and a part of it would be shown.
        if "@" in url:
            raise ValueError("write the address only; user and password belong in username and password")
        for address in map(str.strip, url.split(",")):
            if not address.startswith(("http://", "https://")) or not address.partition("//")[2].strip("/"):
                raise ValueError("should be addresses of http or https, such as https://registry:8081")
            check_host(address)
        return url

    @model_validator(mode="after")
    def _login_fits(self) -> Self:
        problems = []
        if (self.username is None) != (self.password is None):
            problems.append("password: username and password belong together, set both or none")
        if self.username is not None and self.oauthbearer is not None:
            problems.append("oauthbearer: username is set as well; remove one of the two")
        is_plain = any(address.startswith("http://") for address in self.addresses)
        if is_plain and self.tls is not None:
            problems.append("tls: needs an address of https; change url, or remove tls")
        if not self.allow_unencrypted:
            if is_plain and (self.username is not None or self.oauthbearer is not None):
                problems.append(
                    "url: http would send the login unencrypted; use https, or set allow_unencrypted: true if others "
                    "cannot read this network"
                )
            elif self.oauthbearer is not None and self.oauthbearer.token_endpoint_url.startswith("http:"):
                problems.append(
                    "oauthbearer.token_endpoint_url: http would send the client secret unencrypted; use https, or set "
                    "allow_unencrypted: true if others cannot read this network"
                )
        if problems:
            raise InvalidSettingsError(*problems)
        return self
