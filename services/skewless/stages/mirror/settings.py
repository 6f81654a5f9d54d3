"""Settings of the copy of a topic in another Kafka cluster."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, SecretStr

from skewless.kafka.settings import Compression, KafkaSettings, OAuthBearerSettings, SaslSettings
from skewless.settings_base import SettingsModel


# All processes of a pipeline read the same file, and only the stage has the secrets of the other cluster.
class OtherOAuthBearerSettings(OAuthBearerSettings):
    """As `kafka.sasl.oauthbearer`."""

    client_secret: SecretStr = Field(
        SecretStr(""), description="Only the stage `mirror` and `skewless config check` need it."
    )


class OtherSaslSettings(SaslSettings):
    """As `kafka.sasl`. Only the stage `mirror` and `skewless config check` need the password or the client secret."""

    needs_password: ClassVar[bool] = False

    oauthbearer: OtherOAuthBearerSettings | None = Field(None, description="Required with OAUTHBEARER without msk_iam.")


class OtherClusterSettings(KafkaSettings):
    """Connection to the brokers of another cluster."""

    bootstrap_servers: str = Field(min_length=1, description="Comma-separated list of host:port.")
    sasl: OtherSaslSettings | None = Field(None, description="Needed when security_protocol begins with SASL.")


class MirrorSettings(SettingsModel):
    """Settings of the copy of a topic in another Kafka cluster."""

    kafka: OtherClusterSettings = Field(
        description="Connection to the other cluster. Set passwords in the environment "
        "(SKEWLESS__MIRROR__KAFKA__SASL__PASSWORD) rather than in a file."
    )
    topic: Literal["aggregates", "partials"] = Field(
        "aggregates",
        description="What is copied. aggregates: the results. partials: partial results, for a flusher beside the "
        "database.",
    )
    prefix: str = Field(
        "",
        max_length=80,
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$",
        description="What the name of the copy begins with, for example eu. if the other cluster has copies of others.",
    )
    compression: Compression = Field(
        "zstd", description="Compression of the records on their way to the other cluster."
    )
    create: bool = Field(
        True, description="Whether to create the copy if it does not exist. false: the topic must exist."
    )
