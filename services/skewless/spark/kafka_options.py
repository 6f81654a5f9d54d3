"""Kafka access from Spark: options of its Java client, bounded reads of committed records, and writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.kafka.settings import OAuthBearerSettings

OffsetRange = tuple[int, int]
"""First offset (inclusive) and end offset (exclusive)."""
RECORDS_PER_TASK = 1_000_000
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_options(settings: PipelineSettings) -> dict[str, str]:
    """Return the options of Kafka's Java client that correspond to `kafka` in the pipeline's file.

    `kafka.options` are passed on by name. The Java client ignores unknown options.
    """
    kafka = settings.kafka
    options = {name: str(value) for name, value in kafka.options.items()}
    options |= {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": kafka.security_protocol}
    return options | _sasl(settings) | _tls(settings)


def _sasl(settings: PipelineSettings) -> dict[str, str]:
    sasl = settings.kafka.sasl
    if sasl is None:
        return {}
    if sasl.oauthbearer is not None:
        return {"sasl.mechanism": sasl.mechanism, **_oauthbearer(sasl.oauthbearer)}
    login = {"username": sasl.username or "", "password": sasl.password.get_secret_value() if sasl.password else ""}
    return {"sasl.mechanism": sasl.mechanism, "sasl.jaas.config": _jaas(_JAAS[sasl.mechanism], login)}


def _oauthbearer(settings: OAuthBearerSettings) -> dict[str, str]:
    login = {"clientId": settings.client_id, "clientSecret": settings.client_secret.get_secret_value()}
    if settings.scope is not None:
        login["scope"] = settings.scope
    if settings.ca is not None:
        login |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _pem("sasl.oauthbearer.ca", settings.ca)}
    return {
        "sasl.login.callback.handler.class": f"{_OAUTHBEARER}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": settings.token_endpoint_url,
        "sasl.jaas.config": _jaas(f"{_OAUTHBEARER}.OAuthBearerLoginModule", login),
    }


def _jaas(module: str, login: Mapping[str, str]) -> str:
    # A string of JAAS has the escapes of Java.
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    options = " ".join(f'{name}="{value.translate(escapes)}"' for name, value in login.items())
    return f"{module} required {options};"


def _tls(settings: PipelineSettings) -> dict[str, str]:
    # The options contain the certificates instead of file names, because executors on other machines lack the files.
    tls = settings.kafka.tls
    if tls is None:
        return {}
    options = {"ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else ""}
    if tls.ca is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _pem("tls.ca", tls.ca)}
    if tls.certificate is not None and tls.key is not None:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _pem("tls.certificate", tls.certificate),
            "ssl.keystore.key": _pem("tls.key", tls.key),
        }
    if tls.key_password is not None:
        options["ssl.key.password"] = tls.key_password.get_secret_value()
    return options


def _pem(setting: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"kafka.{setting}: {path} cannot be read: {error}") from None


def read(  # noqa: PLR0913 - what to read, and two options of it by name
    spark: SparkSession,
    client: Mapping[str, str],
    topic: str,
    offset_ranges: Mapping[int, OffsetRange],
    *,
    records_per_task: int = RECORDS_PER_TASK,
    headers: bool = True,
) -> DataFrame:
    """Read the committed records of these offset ranges, by partition, as rows of Spark's Kafka source.

    Each task reads a part of one partition in offset order. `client`: options of Kafka's Java client. Reading `headers`
    takes time even if they are not used.
    """
    return read_topics(spark, client, {topic: offset_ranges}, records_per_task=records_per_task, headers=headers)


def read_topics(
    spark: SparkSession,
    client: Mapping[str, str],
    offset_ranges: Mapping[str, Mapping[int, OffsetRange]],
    *,
    records_per_task: int = RECORDS_PER_TASK,
    headers: bool = True,
) -> DataFrame:
    """Read several topics as `read` does. `offset_ranges` has what to read by topic and partition."""
    ranges = [offset_range for of_topic in offset_ranges.values() for offset_range in of_topic.values()]
    size = sum(end - first for first, end in ranges)
    tasks = max(1, len(ranges), -(-size // records_per_task))
    options = {
        **{f"kafka.{name}": value for name, value in client.items()},
        "subscribe": ",".join(offset_ranges),
        "startingOffsets": _offsets(offset_ranges, 0),
        "endingOffsets": _offsets(offset_ranges, 1),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": str(headers).lower(),
        "groupIdPrefix": "spark-kafka",
        "minPartitions": str(tasks),
    }
    return spark.read.format("kafka").options(**options).load()


def _offsets(offset_ranges: Mapping[str, Mapping[int, OffsetRange]], bound: int) -> str:
    return json.dumps(
        {
            topic: {str(partition): offset_range[bound] for partition, offset_range in of_topic.items()}
            for topic, of_topic in offset_ranges.items()
        }
    )


def write(records: DataFrame, client: Mapping[str, str], topic: str) -> None:
    """Write rows of `key`, `value`, `headers` and `partition` into a topic, each at least once."""
    options = {f"kafka.{name}": value for name, value in client.items()}
    records.write.format("kafka").options(**options).option("topic", topic).save()
