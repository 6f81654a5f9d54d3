"""What a user may set about Kafka, and what librdkafka is told in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from skewless.errors import ConfigurationError
from skewless.model import Model

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
"""librdkafka options on which exactness rests: set by the transport, refused from users."""

OWN_FIELD = {
    "bootstrap.servers": "kafka.bootstrap_servers",
    "metadata.broker.list": "kafka.bootstrap_servers",
    "security.protocol": "kafka.security_protocol",
    "sasl.mechanism": "kafka.sasl.mechanism",
    "sasl.mechanisms": "kafka.sasl.mechanism",
    "sasl.username": "kafka.sasl.username",
    "sasl.password": "kafka.sasl.password",
    "ssl.key.password": "kafka.tls.key_password",
    "session.timeout.ms": "transport.session_timeout_s",
}
"""librdkafka options that have a setting of their own: there is one way to say them."""


class SaslSettings(Model):
    """Who we are to the broker."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str = Field(description="User name.")
    password: SecretStr = Field(description="Password; better set by environment than in a file.")


TLS_FILES = {"ssl.ca.location": "ca", "ssl.certificate.location": "certificate", "ssl.key.location": "key"}
"""librdkafka options of the settings in `kafka.tls` that name files."""


class TlsSettings(Model):
    """Files of certificates (PEM). Without `ca` the system's authorities are trusted."""

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
        """Return librdkafka's options; ConfigurationError names each file that cannot be read."""
        options: dict[str, str | int | float | bool] = {
            "enable.ssl.certificate.verification": True,
            "ssl.endpoint.identification.algorithm": "https" if self.verify_hostname else "none",
        }
        files = {option: path for option, name in TLS_FILES.items() if (path := getattr(self, name)) is not None}
        if problems := [
            f"kafka.tls.{TLS_FILES[option]}: {path}: cannot be read: {reason}"
            for option, path in files.items()
            if (reason := _unreadable(Path(path), may_be_folder=option == "ssl.ca.location"))
        ]:
            raise ConfigurationError(*problems)
        if self.key_password is not None:
            options["ssl.key.password"] = self.key_password.get_secret_value()
        return options | files


def _unreadable(path: Path, *, may_be_folder: bool) -> str:
    """Return why a file cannot be read; an empty text when it can be."""
    try:
        if may_be_folder and path.is_dir():
            next(path.iterdir(), None)
        else:
            path.open("rb").close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


class KafkaSettings(Model):
    """How to reach the brokers."""

    bootstrap_servers: str = Field("localhost:9092", min_length=1, description="host:port, several parted by commas.")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl: SaslSettings | None = Field(None, description="Needed when security_protocol begins with SASL.")
    tls: TlsSettings | None = Field(None, description="Only with SSL and SASL_SSL.")
    timeout_s: float = Field(
        15.0, gt=0, le=600, description="How long to wait for a broker before a command gives up (exit 3)."
    )
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Any further librdkafka option, by its own name; those that guarantee exactness are refused.",
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _plain_addresses(cls, servers: str) -> str:
        if "@" in servers or "/" in servers:
            raise ValueError("write host:port only; user and password belong in kafka.sasl")
        return servers

    @field_validator("options")
    @classmethod
    def _not_guaranteed(cls, options: dict[str, str | int | float | bool]) -> dict[str, str | int | float | bool]:
        refused = sorted(GUARANTEED & options.keys())
        if refused:
            raise ValueError(f"{', '.join(refused)}: set by the transport, exactness rests on it; remove it")
        for name in sorted(OWN_FIELD.keys() & options.keys()):
            raise ValueError(f"{name}: use {OWN_FIELD[name]}")
        return options

    @model_validator(mode="after")
    def _security_fits(self) -> KafkaSettings:
        if self.security_protocol.startswith("SASL") != (self.sasl is not None):
            raise ValueError(
                f"sasl must be set if and only if security_protocol is SASL_*; it is {self.security_protocol}"
            )
        if self.tls is not None and not self.security_protocol.endswith("SSL"):
            raise ValueError(f"tls needs security_protocol SSL or SASL_SSL; it is {self.security_protocol}")
        return self

    def client_options(self) -> dict[str, str | int | float | bool]:
        """Tell librdkafka how to reach the brokers: the part that all clients share."""
        options: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "reconnect.backoff.max.ms": 1000,  # a broker that comes back is found within a second, not ten
            **self.options,
        }
        if self.sasl is not None:
            options["sasl.mechanism"] = self.sasl.mechanism
            options["sasl.username"] = self.sasl.username
            options["sasl.password"] = self.sasl.password.get_secret_value()
        if self.security_protocol.endswith("SSL"):
            options |= (self.tls or TlsSettings.model_validate({})).client_options()
        return options


class TransportSettings(Model):
    """How records travel: guarantee, commits, and how much may be under way."""

    guarantee: Literal["exactly_once", "at_least_once"] = Field(
        "exactly_once", description="exactly_once: outputs and offsets in one transaction."
    )
    commit_interval_s: float = Field(
        0.5, ge=0.01, le=60, description="Time between commits; each stage adds about one to the end-to-end latency."
    )
    poll_records: int = Field(10_000, ge=1, le=1_000_000, description="Most records that one poll hands over.")
    in_flight_batches: int = Field(
        8,
        ge=1,
        le=1024,
        description="Batches read but not processed, in all; a process that owns more than half as many partitions "
        "may have two of each.",
    )
    in_flight_bytes: int = Field(
        16 * 2**20, ge=2**16, description="Bytes read but not processed, in all; one poll may go over it."
    )
    session_timeout_s: float = Field(
        10.0, ge=1, le=300, description="After this silence a process loses its partitions."
    )
    leave_on_stop: bool = Field(
        True,
        description="Whether a process that is asked to end hands its partitions over at once. Without it they rest "
        "until it is back or session_timeout_s is over, and a restart within that time is no rebalance.",
    )
    transaction_timeout_s: float = Field(
        15.0, ge=1, le=900, description="After this time the broker aborts an open transaction."
    )
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = Field(
        "lz4", description="Compression of what is produced."
    )

    @model_validator(mode="after")
    def _transaction_outlives_commits(self) -> TransportSettings:
        if self.transaction_timeout_s < 3 * self.commit_interval_s:
            raise ValueError("transaction_timeout_s must be at least 3 x commit_interval_s, or transactions time out")
        return self
