"""Settings of Kafka and the transport, and the librdkafka options that result from them."""

from __future__ import annotations

import logging
import re
from typing import Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from skewless.errors import ConfigurationError, how_to_add
from skewless.login_settings import TokenLoginSettings, require_readable, system_authorities
from skewless.settings_base import InvalidSettingsError, SettingsModel

log = logging.getLogger(__name__)

GUARANTEED = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "client.id",
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "partition.assignment.strategy",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""librdkafka options that exactness depends on. The transport sets them; users may not."""

OBJECTS = frozenset({"default.topic.config", "error_cb", "logger", "oauth_cb", "stats_cb", "throttle_cb"})
"""Options of confluent-kafka whose values are objects of Python."""

Compression = Literal["none", "lz4", "zstd", "snappy", "gzip"]

_ADDRESS = re.compile(r"(\[[^\s\]]+\]|[^\s:\[\]]+):\d{1,5}")
OWN_FIELD = {
    "bootstrap.servers": "kafka.bootstrap_servers",
    "metadata.broker.list": "kafka.bootstrap_servers",
    "security.protocol": "kafka.security_protocol",
    "sasl.mechanism": "kafka.sasl.mechanism",
    "sasl.mechanisms": "kafka.sasl.mechanism",
    "sasl.username": "kafka.sasl.username",
    "sasl.password": "kafka.sasl.password",
    "sasl.oauthbearer.method": "kafka.sasl.oauthbearer",
    "sasl.oauthbearer.token.endpoint.url": "kafka.sasl.oauthbearer.token_endpoint_url",
    "sasl.oauthbearer.client.id": "kafka.sasl.oauthbearer.client_id",
    "sasl.oauthbearer.client.credentials.client.id": "kafka.sasl.oauthbearer.client_id",
    "sasl.oauthbearer.client.secret": "kafka.sasl.oauthbearer.client_secret",
    "sasl.oauthbearer.client.credentials.client.secret": "kafka.sasl.oauthbearer.client_secret",
    "sasl.oauthbearer.scope": "kafka.sasl.oauthbearer.scope",
    "https.ca.location": "kafka.sasl.oauthbearer.ca",
    "ssl.key.password": "kafka.tls.key_password",
    "ssl.endpoint.identification.algorithm": "kafka.tls.verify_hostname",
    "enable.ssl.certificate.verification": "kafka.tls.ca, because certificates are always verified",
    "session.timeout.ms": "transport.session_timeout_s",
    "compression.type": "transport.compression, or mirror.compression for the copy",
    "compression.codec": "transport.compression, or mirror.compression for the copy",
}
"""librdkafka options that have a setting of their own. Only that setting is accepted."""
METADATA_INTERVAL_MS = "topic.metadata.refresh.interval.ms"
"""librdkafka option that the splitter reads, too. 0 or less: never."""


class OAuthBearerSettings(TokenLoginSettings):
    """Login with tokens of an identity provider: OIDC with the grant type client credentials."""

    def client_options(self) -> dict[str, str | int | float | bool]:
        """Return librdkafka's options. Raises ConfigurationError without a secret, and for an unreadable file `ca`."""
        if not self.client_secret.get_secret_value():
            raise ConfigurationError("kafka.sasl.oauthbearer.client_secret: is required")
        options: dict[str, str | int | float | bool] = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.token_endpoint_url,
            "sasl.oauthbearer.client.id": self.client_id,
            "sasl.oauthbearer.client.secret": self.client_secret.get_secret_value(),
        }
        if self.scope is not None:
            options["sasl.oauthbearer.scope"] = self.scope
        require_readable("kafka.sasl.oauthbearer", {"ca": self.ca})
        # By default librdkafka 2.16 reads only the file of Red Hat's systems, also with the value `probe`.
        if ca := self.ca or system_authorities():
            options["https.ca.location"] = ca
        return options


class MskIamSettings(SettingsModel):
    """Login with IAM of Amazon MSK. Its credentials are those that AWS's library finds, such as the role of a pod."""

    region: str = Field(pattern=r"^[a-z0-9-]+$", description="AWS region of the cluster, such as eu-west-1.")

    def client_options(self) -> dict[str, Any]:
        """Return librdkafka's options. Raises ConfigurationError if the package that signs tokens is missing."""
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        except ImportError as error:
            raise ConfigurationError(
                f"kafka.sasl.msk_iam: the signer of AWS cannot be imported ({error}): {how_to_add('msk')}"
            ) from None

        def token(_config: str) -> tuple[str, float]:
            try:
                signed, expires_ms = MSKAuthTokenProvider.generate_auth_token(self.region)
            except Exception as error:
                log.warning("kafka.sasl.msk_iam: no token, trying again: %s", error)
                raise
            return signed, expires_ms / 1000

        return {"oauth_cb": token}


INSTEAD = {
    "GSSAPI": "the Kafka client has no library of Kerberos: add a listener with passwords or certificates to the "
    "cluster, see docs/how-to/secured-cluster.md",
    "AWS_MSK_IAM": "set OAUTHBEARER and msk_iam.region, see docs/how-to/secured-cluster.md",
}
"""Mechanisms that other clients have -> what to use instead."""


class SaslSettings(SettingsModel):
    """Credentials of this client: user name and password, `oauthbearer`, or `msk_iam`."""

    needs_password: ClassVar[bool] = True
    """Whether settings without a password are invalid. Otherwise only a client is."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "SCRAM-SHA-512"
    username: str | None = Field(None, description="User name. Required without OAUTHBEARER.")
    password: SecretStr | None = Field(
        None, description="Password. Required without OAUTHBEARER. Set it in the environment rather than in a file."
    )
    oauthbearer: OAuthBearerSettings | None = Field(None, description="Required with OAUTHBEARER without msk_iam.")
    msk_iam: MskIamSettings | None = Field(None, description="With OAUTHBEARER: login with IAM of Amazon MSK.")
    allow_unencrypted: bool = Field(
        False,
        description="Whether the login may be sent without TLS (SASL_PLAINTEXT, or a token endpoint with http), so "
        "that others on the network may read it.",
    )

    @field_validator("mechanism", mode="before")
    @classmethod
    def _is_available(cls, mechanism: Any) -> Any:
        if isinstance(mechanism, str) and mechanism in INSTEAD:
            raise ValueError(f"{mechanism} is not available: {INSTEAD[mechanism]}")
        return mechanism

    @model_validator(mode="after")
    def _credentials_fit(self) -> SaslSettings:
        names = ("username", "password", "oauthbearer", "msk_iam")
        credentials = {name: getattr(self, name) for name in names}
        used: tuple[str, ...] = ("username", "password")
        if self.mechanism == "OAUTHBEARER":
            used = ("oauthbearer",) if self.msk_iam is None else ("msk_iam",)
        required = [name for name in used if self.needs_password or name != "password"]
        problems = [f"{name}: is required with {self.mechanism}" for name in required if credentials[name] is None]
        problems += [
            f"{name}: is not used with {self.mechanism}; remove it"
            for name, value in credentials.items()
            if name not in used and value is not None
        ]
        if problems:
            raise InvalidSettingsError(*problems)
        if self.oauthbearer and self.oauthbearer.token_endpoint_url.startswith("http:") and not self.allow_unencrypted:
            raise InvalidSettingsError(
                "oauthbearer.token_endpoint_url: http would send the client secret unencrypted; use https, or set "
                "kafka.sasl.allow_unencrypted: true if others cannot read this network"
            )
        return self

    def client_options(self) -> dict[str, Any]:
        """Return librdkafka's options.

        Raises ConfigurationError for a missing password or package, and an unreadable file.
        """
        options: dict[str, Any] = {"sasl.mechanism": self.mechanism}
        if self.mechanism != "OAUTHBEARER" and self.password is None:
            raise ConfigurationError(f"kafka.sasl.password: is required with {self.mechanism}")
        if (tokens := self.oauthbearer or self.msk_iam) is not None:
            options |= tokens.client_options()
        if self.username is not None:
            options["sasl.username"] = self.username
        if self.password is not None:
            options["sasl.password"] = self.password.get_secret_value()
        return options


TLS_FILES = {"ssl.ca.location": "ca", "ssl.certificate.location": "certificate", "ssl.key.location": "key"}
"""librdkafka option -> setting in `kafka.tls`, for the settings that name files."""


KEY_REMEDY = "kafka.tls.key_password must be the key's password, if it has one"


class TlsSettings(SettingsModel):
    """Certificate files (PEM). Without `ca`, the certificate authorities of the system are trusted."""

    ca: str | None = Field(None, description="File of the authorities that sign the brokers' certificates.")
    certificate: str | None = Field(None, description="File of this client's certificate, for mutual TLS.")
    key: str | None = Field(None, description="File of this client's private key.")
    key_password: SecretStr | None = Field(None, description="Password of the private key.")
    verify_hostname: bool = Field(True, description="Whether a broker's certificate must carry its host name.")

    @model_validator(mode="after")
    def _certificate_has_key(self) -> TlsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or none")
        return self

    def client_options(self) -> dict[str, str | int | float | bool]:
        """Return librdkafka's options. Raises ConfigurationError with each file that cannot be read."""
        options: dict[str, str | int | float | bool] = {
            "enable.ssl.certificate.verification": True,
            "ssl.endpoint.identification.algorithm": "https" if self.verify_hostname else "none",
        }
        files = {option: path for option, name in TLS_FILES.items() if (path := getattr(self, name)) is not None}
        require_readable("kafka.tls", {TLS_FILES[option]: path for option, path in files.items()}, folders={"ca"})
        if self.key_password is not None:
            options["ssl.key.password"] = self.key_password.get_secret_value()
        return options | files


class KafkaSettings(SettingsModel):
    """Connection to the brokers."""

    bootstrap_servers: str = Field(
        "localhost:9092",
        min_length=1,
        description="Comma-separated list of host:port. Unset: $KAFKA_BOOTSTRAP_SERVERS, if it is set.",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl: SaslSettings | None = Field(None, description="Needed when security_protocol begins with SASL.")
    tls: TlsSettings | None = Field(None, description="Only with SSL and SASL_SSL.")
    connect_timeout_s: float = Field(
        15.0, gt=0, le=600, description="Time to wait for a broker before a command fails (exit 3)."
    )
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Further librdkafka options, by librdkafka's names. Options that exactness depends on are refused.",
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _plain_addresses(cls, servers: str) -> str:
        if "@" in servers or "/" in servers:
            raise ValueError("write host:port only; user and password belong in kafka.sasl")
        for server in servers.split(","):
            if not _ADDRESS.fullmatch(server.strip()):
                raise ValueError(f"{server.strip()!r} is not host:port, such as broker:9092")
        return servers

    @field_validator("options")
    @classmethod
    def _are_free(cls, options: dict[str, str | int | float | bool]) -> dict[str, str | int | float | bool]:
        problems = [
            f"{name}: set by the transport, exactness rests on it; remove it"
            for name in sorted(GUARANTEED & options.keys())
        ]
        problems += [
            f"{name}: is not an option of librdkafka, its value is an object of Python; remove it"
            for name in sorted(OBJECTS & options.keys())
        ]
        problems += [f"{name}: use {OWN_FIELD[name]}" for name in sorted(OWN_FIELD.keys() & options.keys())]
        try:
            float(str(options.get(METADATA_INTERVAL_MS, 0)))
        except ValueError:
            problems.append(f"{METADATA_INTERVAL_MS}: should be a number")
        if problems:
            raise InvalidSettingsError(*problems)
        return options

    @model_validator(mode="after")
    def _security_fits(self) -> KafkaSettings:
        if self.security_protocol.startswith("SASL") != (self.sasl is not None):
            raise ValueError(
                f"sasl must be set if and only if security_protocol is SASL_*; it is {self.security_protocol}"
            )
        if self.security_protocol == "SASL_PLAINTEXT" and self.sasl is not None and not self.sasl.allow_unencrypted:
            raise InvalidSettingsError(
                "security_protocol: SASL_PLAINTEXT would send the login unencrypted; use SASL_SSL, or set "
                "kafka.sasl.allow_unencrypted: true if others cannot read this network"
            )
        if self.tls is not None and not self.security_protocol.endswith("SSL"):
            raise ValueError(f"tls needs security_protocol SSL or SASL_SSL; it is {self.security_protocol}")
        return self

    def client_options(self) -> dict[str, Any]:
        """Return the librdkafka options that all clients share: addresses and security."""
        options: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            # Half of it, but at least 11 ms, is the interval at which a new client chooses brokers to connect to: first
            # one of the list, then one of the metadata. The default is 100 ms.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 1000,  # finds a broker that comes back within 1 s; the default is 10 s
            # The same for a client that has lost all the brokers in its metadata. The default is 5 minutes.
            "metadata.recovery.rebootstrap.trigger.ms": 10_000,
            **self.options,
        }
        if self.sasl is not None:
            options |= self.sasl.client_options()
        if self.security_protocol.endswith("SSL"):
            options |= (self.tls or TlsSettings.model_validate({})).client_options()
        return options


class TransportSettings(SettingsModel):
    """Transport of records: guarantee, commits and limits for what is in flight."""

    guarantee: Literal["exactly_once", "at_least_once"] = Field(
        "exactly_once", description="exactly_once: outputs and offsets in one transaction."
    )
    commit_interval_s: float = Field(
        0.5,
        ge=0.01,
        le=60,
        description="Minimum time between commits that write. Every stage after the first one commits when a "
        "transaction of the previous stage has arrived, so a record waits for about one interval in all.",
    )
    max_poll_records: int = Field(10_000, ge=1, le=1_000_000, description="Maximum number of records of one poll.")
    max_in_flight_batches: int = Field(
        8,
        ge=1,
        le=1024,
        description="Maximum number of batches in flight: read but not processed. A process with more than half as "
        "many partitions may have two batches of each.",
    )
    max_in_flight_bytes: int = Field(
        16 * 2**20,
        ge=2**16,
        description="Maximum number of bytes in flight: read but not processed. Above it, only partitions with nothing "
        "in flight are read, in small polls. So the records of two polls may exceed it.",
    )
    session_timeout_s: float = Field(
        6.0,
        ge=1,
        le=300,
        description="Time without heartbeats after which the broker revokes a process's partitions. Brokers accept no "
        "less than their group.min.session.timeout.ms, 6 s by default.",
    )
    leave_group_on_close: bool = Field(
        True,
        description="Whether a process that is stopped leaves its group, so that its partitions are reassigned at "
        "once. Otherwise they are not processed until it is back or session_timeout_s is over, and a restart within "
        "that time causes no rebalance.",
    )
    transaction_timeout_s: float = Field(
        15.0,
        ge=1,
        le=900,
        description="Time after which the broker aborts an open transaction. One that needs longer to be written is "
        "aborted, and repeated with more time, up to 180 s. Above 180, raise metrics.liveness_timeout_s as well, and "
        "above 300 max.poll.interval.ms in kafka.options.",
    )
    compression: Compression = Field("lz4", description="Compression of produced records.")

    @model_validator(mode="after")
    def _transaction_outlives_commits(self) -> TransportSettings:
        if self.transaction_timeout_s < 3 * self.commit_interval_s:
            raise ValueError("transaction_timeout_s must be at least 3 x commit_interval_s, or transactions time out")
        return self
