"""Settings of the copy of a topic in another Kafka cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from skewless.kafka.settings import Compression, KafkaSettings
from skewless.settings_base import SettingsModel


class MirrorSettings(SettingsModel):
    """Settings of the copy of a topic in another Kafka cluster."""

    kafka: KafkaSettings = Field(
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

    @field_validator("kafka")
    @classmethod
    def _names_the_brokers(cls, kafka: KafkaSettings) -> KafkaSettings:
        if "bootstrap_servers" not in kafka.model_fields_set:
            raise ValueError("bootstrap_servers: missing; name the brokers of the other cluster")
        return kafka
