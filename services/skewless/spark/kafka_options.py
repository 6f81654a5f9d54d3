"""Kafka access from Spark: options of its Java client, bounded reads of committed records, and writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession

from skewless.config.pipeline_settings import SourceSettings, TopicPattern
from skewless.errors import ConfigurationError
from skewless.kafka.settings import KEY_REMEDY, TLS_FILES, Compression, KafkaSettings, OAuthBearerSettings, TlsSettings

TopicRanges = Mapping[str, Mapping[int, tuple[int, int]]]
"""First offset (inclusive) and end offset (exclusive), by topic and partition."""
RECORDS_PER_TASK = 1_000_000
FETCH_WAIT_MS = 10
"""Time for which a broker delays the answer to a fetch at the end of a partition. A task that has read up to the end
asks for the end offset next, and the broker answers the requests of a connection one after the other. With Kafka's
default of 500 ms, each task would take half a second more."""
_EXTENSIONS = "sasl.oauthbearer.extensions"
_LEFT_OUT = ("linger.ms", "delivery.timeout.ms", "ssl.cipher.suites", _EXTENSIONS, ".pem")
"""Ends of the names of options that differ in Java: fractions of a ms, less than the time for a request, OpenSSL's
names of ciphers, pairs that are part of the JAAS text, and certificates and keys, which have other names."""
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
"""Names of the certificates that OpenSSL reads in a folder."""
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
_MSK_IAM = {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
"""Options of AWS's library for Java, aws-msk-iam-auth."""
_JAAS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return the options of Kafka's Java client that correspond to `kafka` in the pipeline's file.

    `kafka.options` are passed on by name, unless they differ in the Java client. It ignores unknown options.
    """
    options = {name: str(value) for name, value in kafka.options.items() if not name.endswith(_LEFT_OUT)}
    options |= {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": kafka.security_protocol}
    return options | _sasl(kafka) | _tls(kafka)


def _sasl(kafka: KafkaSettings) -> dict[str, str]:
    sasl = kafka.sasl
    if sasl is None:
        return {}
    if sasl.msk_iam is not None:
        return _MSK_IAM
    if sasl.oauthbearer is not None:
        extensions = str(kafka.options.get(_EXTENSIONS, ""))
        return {"sasl.mechanism": sasl.mechanism, **_oauthbearer(sasl.oauthbearer, extensions)}
    login = {"username": sasl.username or "", "password": sasl.password.get_secret_value() if sasl.password else ""}
    return {"sasl.mechanism": sasl.mechanism, "sasl.jaas.config": _jaas(_JAAS[sasl.mechanism], login)}


def _oauthbearer(settings: OAuthBearerSettings, extensions: str) -> dict[str, str]:
    """Return the options of a login with tokens. `extensions`: pairs for the broker, as name=value,name=value."""
    login = {"clientId": settings.client_id, "clientSecret": settings.client_secret.get_secret_value()}
    if settings.scope is not None:
        login["scope"] = settings.scope
    for pair in filter(None, map(str.strip, extensions.split(","))):
        name, _, value = pair.partition("=")
        login[f"extension_{name}"] = value
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


def _tls(kafka: KafkaSettings) -> dict[str, str]:
    # The options contain the certificates instead of file names, because executors on other machines lack the files.
    if not kafka.security_protocol.endswith("SSL"):
        return {}
    tls = kafka.tls or TlsSettings.model_validate({})
    ca, certificate, key = (_named_pem(kafka, option, name) for option, name in TLS_FILES.items())
    options = {"ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else ""}
    if ca is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca}
    if certificate is not None and key is not None:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            # Spark's web UI and event log hide options whose name or value matches spark.redaction.regex. By default it
            # matches `secret`, and not the name of this option. Kafka ignores text before the key.
            "ssl.keystore.key": f"secret\n{_private_key(key, tls.key_password)}",
        }
    return options


def _named_pem(kafka: KafkaSettings, option: str, name: str) -> str | None:
    """Return the text of a setting of `kafka.tls`, or of the options that take its place; None if none is set."""
    if text := kafka.options.get(f"ssl.{name}.pem"):
        return str(text)
    path = getattr(kafka.tls, name, None) or kafka.options.get(option, "probe")
    return None if path == "probe" else _pem(f"tls.{name}", str(path))  # `probe`: the system's authorities


def _private_key(pem: str, password: SecretStr | None) -> str:
    """Return a key as PKCS#8 without a password, because Java reads few of the forms that OpenSSL writes."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    # A password that the key does not have is no error for librdkafka either.
    word = password.get_secret_value().encode() if password is not None and "ENCRYPTED" in pem else None
    try:
        key = serialization.load_pem_private_key(pem.encode(), word)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(
            f"the key of kafka.tls.key or kafka.options cannot be used: {error}; {KEY_REMEDY}"
        ) from None
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _pem(setting: str, path: str) -> str:
    """Return the text of a file, or of those in a folder that have the names of `openssl rehash`."""
    named = Path(path)
    try:
        files = [named]
        if named.is_dir():
            files = sorted(file for file in named.iterdir() if _HASHED.fullmatch(file.name))
        return "".join(file.read_text(encoding="ascii") for file in files)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"kafka.{setting}: {path} cannot be read: {error}") from None


def read(
    spark: SparkSession,
    kafka: KafkaSettings,
    ranges: TopicRanges,
    *,
    records_per_task: int = RECORDS_PER_TASK,
    headers: bool = True,
) -> DataFrame:
    """Read the committed records of these offsets, by full name of the topic and partition.

    The rows are those of Spark's Kafka source. Each task reads a part of one partition in offset order. Reading
    `headers` takes time even if they are not used. Other partitions are not read, also if they are added meanwhile.
    """
    sizes = [end - first for partitions in ranges.values() for first, end in partitions.values()]
    tasks = max(1, len(sizes), -(-sum(sizes) // records_per_task))
    starts, ends = (
        json.dumps(
            {topic: {str(p): span[bound] for p, span in partitions.items()} for topic, partitions in ranges.items()}
        )
        for bound in (0, 1)
    )
    options = {
        **_reader_options(kafka),
        "assign": json.dumps({topic: list(partitions) for topic, partitions in ranges.items()}),
        "startingOffsets": starts,
        "endingOffsets": ends,
        "includeHeaders": str(headers).lower(),
        "groupIdPrefix": "spark-kafka",
        "minPartitions": str(tasks),
    }
    return spark.read.format("kafka").options(**options).load()


def read_stream(
    spark: SparkSession,
    kafka: KafkaSettings,
    source: SourceSettings,
    starts: Mapping[str, Mapping[int, int]],
    *,
    records_per_batch: int,
) -> DataFrame:
    """Plan the committed records of the source topics as a stream, from these offsets by topic and partition on.

    Partitions that are added later begin at offset 0. Records that are deleted before they are read end the query.
    """
    if isinstance(source.topics, TopicPattern):
        # Spark takes each topic whose name contains a match.
        topics = {"subscribePattern": rf"\A(?:{source.topics.match})\z"}
    else:
        topics = {"subscribe": ",".join(source.select(()))}
    options = {
        **_reader_options(kafka),
        **topics,
        "startingOffsets": json.dumps({topic: {str(p): at for p, at in of.items()} for topic, of in starts.items()}),
        "groupIdPrefix": "spark-kafka",
        "maxOffsetsPerTrigger": str(records_per_batch),
        "failOnDataLoss": "true",
    }
    return spark.readStream.format("kafka").options(**options).load()


def write(records: DataFrame, kafka: KafkaSettings, compression: Compression, topic: str) -> None:
    """Write rows of `key`, `value`, `headers` and `partition` into a topic, each at least once."""
    options = _source_options(kafka) | {"kafka.compression.type": compression, "topic": topic}
    records.write.format("kafka").options(**options).save()


def _reader_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return the options of a source. Those of the pipeline's file override the wait."""
    return {
        "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
        **_source_options(kafka),
        "kafka.isolation.level": "read_committed",
    }


def _source_options(kafka: KafkaSettings) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in client_options(kafka).items()}
