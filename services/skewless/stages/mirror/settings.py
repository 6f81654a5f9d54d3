"""Settings of the copy of a topic in another Kafka cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skewless.kafka.settings import Compression, KafkaSettings
from skewless.settings_base import SettingsModel


class OtherClusterSettings(KafkaSettings):
    """Connection to the brokers of another cluster."""

    bootstrap_servers: str = Field(min_length=1, description="Comma-separated list of host:port.")


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
