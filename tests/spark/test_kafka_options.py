"""Kafka's Java client gets certificates, keys and logins in a form that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from skewless.errors import ConfigurationError
from skewless.kafka.settings import KafkaSettings
from skewless.spark.kafka_options import client_options, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PKCS8 = serialization.PrivateFormat.PKCS8
OF_ALGORITHM = serialization.PrivateFormat.TraditionalOpenSSL
"""`BEGIN EC PRIVATE KEY` or `BEGIN RSA PRIVATE KEY`."""
PASSWORD = "of-a-key"  # noqa: S105 - of a key that lives as long as a test
KEYS: dict[str, PrivateKeyTypes] = {
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "rsa": rsa.generate_private_key(65537, 2048),
}


def text(key: PrivateKeyTypes, form: serialization.PrivateFormat, password: str | None) -> str:
    encryption = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()


def options_of(folder: Path, key: str, password: str | None) -> dict[str, str]:
    """Return the options of a client with this key."""
    (folder / "client.key").write_text(key)
    (folder / "client.crt").write_text("a certificate")
    tls = {"certificate": str(folder / "client.crt"), "key": str(folder / "client.key"), "key_password": password}
    return client_options(KafkaSettings.model_validate({"security_protocol": "SSL", "tls": tls}))


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("form", [PKCS8, OF_ALGORITHM])
@pytest.mark.parametrize(("encrypted_with", "password"), [(PASSWORD, PASSWORD), (None, None), (None, PASSWORD)])
def test_client_options_key_of_any_form_is_pkcs8_without_a_password(
    tmp_path: Path, algorithm: str, form: serialization.PrivateFormat, encrypted_with: str | None, password: str | None
) -> None:
    options = options_of(tmp_path, text(KEYS[algorithm], form, encrypted_with), password)
    assert options["ssl.keystore.key"] == f"secret\n{text(KEYS[algorithm], PKCS8, None)}"
    assert "ssl.key.password" not in options


@pytest.mark.parametrize("password", [None, "another"])
def test_client_options_key_whose_password_is_another_is_refused_with_the_setting(
    tmp_path: Path, password: str | None
) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka.tls.key or .* cannot be used: .*key_password"):
        options_of(tmp_path, text(KEYS["ec"], PKCS8, PASSWORD), password)


@pytest.mark.parametrize("as_text", [True, False])
def test_client_options_certificates_of_librdkafkas_options_are_those_of_java(tmp_path: Path, *, as_text: bool) -> None:
    contents = {"ca": "an authority", "certificate": "a certificate", "key": text(KEYS["ec"], PKCS8, None)}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    named = {f"ssl.{name}.location": str(tmp_path / name) for name in contents}
    if as_text:
        named = {"ssl.ca.location": "probe"} | {f"ssl.{name}.pem": content for name, content in contents.items()}
    options = client_options(KafkaSettings.model_validate({"security_protocol": "SSL", "options": named}))
    found = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key")
    assert [options[name].removeprefix("secret\n") for name in found] == [*contents.values()]


@pytest.mark.parametrize("as_text", [True, False])
def test_write_private_key_is_hidden_in_the_plan_that_spark_shows_and_logs(
    spark: SparkSession, tmp_path: Path, *, as_text: bool
) -> None:
    key = text(KEYS["ec"], PKCS8, None)
    (tmp_path / "client.key").write_text(key)
    named = {"ssl.key.pem": key} if as_text else {"ssl.key.location": str(tmp_path / "client.key")}
    options = {"ssl.certificate.pem": "a certificate", **named}
    shown = client_options(KafkaSettings.model_validate({"security_protocol": "SSL", "options": options}))
    jvm = spark._jvm
    assert jvm is not None
    hidden = spark._jsparkSession.sessionState().conf().redactOptions(jvm.PythonUtils.toScalaMap(shown)).toString()
    assert "PRIVATE KEY" not in hidden
    assert "a certificate" in hidden


def test_client_options_folder_of_authorities_has_those_that_openssl_reads(tmp_path: Path) -> None:
    for name in ("0123abcd.0", "0123abcd.1", "notes.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    options = client_options(KafkaSettings.model_validate({"security_protocol": "SSL", "tls": {"ca": str(tmp_path)}}))
    assert options["ssl.truststore.certificates"] == "0123abcd.0\n0123abcd.1\n"


def test_client_options_extensions_of_a_token_are_those_of_java() -> None:
    oauthbearer = {"token_endpoint_url": "https://identity/token", "client_id": "a", "client_secret": "b"}
    sasl = {"mechanism": "OAUTHBEARER", "oauthbearer": oauthbearer}
    extensions = {"sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=pool-2"}
    settings = {"security_protocol": "SASL_SSL", "sasl": sasl, "options": extensions}
    options = client_options(KafkaSettings.model_validate(settings))
    assert 'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2";' in options["sasl.jaas.config"]
    assert not extensions.keys() & options.keys()


def test_client_options_of_librdkafka_alone_are_left_out() -> None:
    common = {"client.rack": "a"}
    left_out = {"linger.ms": 0.5, "delivery.timeout.ms": 10_000, "ssl.cipher.suites": "AES256-SHA"}
    settings = KafkaSettings.model_validate({"options": common | left_out})
    own = {"bootstrap.servers", "security.protocol"}
    assert {name: value for name, value in client_options(settings).items() if name not in own} == common


def test_write_records_are_compressed_as_those_of_a_stage() -> None:
    records = MagicMock()
    write(records, KafkaSettings(), "zstd", "results")
    written = records.write.format.return_value.options
    assert written.call_args.kwargs["kafka.compression.type"] == "zstd"
