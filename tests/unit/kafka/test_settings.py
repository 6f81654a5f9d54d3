"""Logins of `kafka`: which settings fit together, and the options of the clients that result."""

from __future__ import annotations

import base64
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import SecretStr, ValidationError

from skewless import login_settings
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.kafka.clients import connect_admin
from skewless.kafka.settings import METADATA_INTERVAL_MS, OWN_FIELD, TLS_FILES, KafkaSettings, TlsSettings
from skewless.kafka.validate_options import check_files
from skewless.spark import kafka_options

TOKENS = {"token_endpoint_url": "https://id.example/token", "client_id": "pipelines", "client_secret": 's3"cret'}

MSK = {"mechanism": "OAUTHBEARER", "msk_iam": {"region": "eu-west-1"}}


def by_token(**changes: Any) -> dict[str, Any]:
    return {"mechanism": "OAUTHBEARER", "oauthbearer": {**TOKENS, **changes}}


def secured(sasl: dict[str, Any], protocol: str = "SASL_SSL") -> KafkaSettings:
    return KafkaSettings.model_validate({"security_protocol": protocol, "sasl": sasl})


@pytest.mark.parametrize(
    ("sasl", "message"),
    [
        ({}, "username: is required with SCRAM-SHA-512; password: is required with SCRAM-SHA-512"),
        ({"username": "ann"}, "password: is required with SCRAM-SHA-512"),
        ({"mechanism": "OAUTHBEARER"}, "oauthbearer: is required with OAUTHBEARER"),
        ({**by_token(), "username": "ann"}, "username: is not used with OAUTHBEARER; remove it"),
        ({**by_token(), "mechanism": "PLAIN"}, "oauthbearer: is not used with PLAIN; remove it"),
        ({**by_token(), **MSK}, "oauthbearer: is not used with OAUTHBEARER; remove it"),
        ({**MSK, "mechanism": "PLAIN"}, "msk_iam: is not used with PLAIN; remove it"),
        ({**MSK, "msk_iam": {"region": "https://x"}}, "msk_iam.region\n  String should match pattern"),
        (
            {"mechanism": "GSSAPI"},
            "GSSAPI is not available: the Kafka client has no library of Kerberos: add a listener",
        ),
        ({"mechanism": "AWS_MSK_IAM"}, "AWS_MSK_IAM is not available: set OAUTHBEARER and msk_iam.region"),
        ({"mechanism": ["PLAIN"]}, "should be 'PLAIN', 'SCRAM-SHA-256'"),
    ],
)
def test_sasl_credentials_of_another_mechanism_are_refused(sasl: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        secured(sasl)


@pytest.mark.parametrize("sasl", [{"username": "ann", "password": "p"}, by_token()])
def test_sasl_without_tls_needs_the_setting_that_allows_it(sasl: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"SASL_PLAINTEXT would send the login unencrypted; use SASL_SSL, or set"):
        secured(sasl, "SASL_PLAINTEXT")
    allowed = secured({**sasl, "allow_unencrypted": True}, "SASL_PLAINTEXT")
    assert allowed.client_options()["security.protocol"] == "SASL_PLAINTEXT"


def test_token_endpoint_without_tls_needs_the_setting_that_allows_it() -> None:
    url = "http://127.0.0.1:8080/token"
    with pytest.raises(ValidationError, match="http would send the client secret unencrypted"):
        secured(by_token(token_endpoint_url=url))
    allowed = secured({**by_token(token_endpoint_url=url), "allow_unencrypted": True})
    assert allowed.client_options()["sasl.oauthbearer.token.endpoint.url"] == url


@pytest.mark.parametrize("url", ["id.example/token", "ftp://id.example", "https://ann:pw@id.example/token"])
def test_token_endpoint_that_is_not_a_plain_address_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="token_endpoint_url"):
        secured(by_token(token_endpoint_url=url))


def test_client_options_of_oauthbearer_are_those_of_oidc() -> None:
    options = secured(by_token(scope="a b", ca=__file__)).client_options()
    assert {name: value for name, value in options.items() if name.startswith(("sasl", "https"))} == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
        "sasl.oauthbearer.client.id": "pipelines",
        "sasl.oauthbearer.client.secret": 's3"cret',
        "sasl.oauthbearer.scope": "a b",
        "https.ca.location": __file__,
    }


def test_client_options_of_oauthbearer_without_an_authority_name_the_file_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(login_settings, "SYSTEM_AUTHORITIES", ("/nowhere", __file__, "/"))
    assert secured(by_token()).client_options()["https.ca.location"] == __file__
    monkeypatch.setattr(login_settings, "SYSTEM_AUTHORITIES", ("/nowhere",))
    assert "https.ca.location" not in secured(by_token()).client_options()


def test_check_files_authority_of_the_token_endpoint_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"kafka.sasl.oauthbearer.ca: /nowhere: cannot be read: No such file"):
        check_files(secured(by_token(ca="/nowhere")))


@pytest.mark.parametrize("option", OWN_FIELD)
def test_options_that_have_a_setting_are_refused(option: str) -> None:
    with pytest.raises(ValidationError, match=f"{option}: use {OWN_FIELD[option]}"):
        KafkaSettings.model_validate({"options": {option: "x"}})


@pytest.mark.parametrize(
    "option", ["default.topic.config", "error_cb", "logger", "oauth_cb", "stats_cb", "throttle_cb"]
)
def test_options_whose_values_are_objects_of_python_are_refused(option: str) -> None:
    with pytest.raises(ValidationError, match=f"{option}: is not an option of librdkafka"):
        KafkaSettings(options={option: "x"})


def test_options_that_are_refused_for_several_reasons_are_all_named() -> None:
    options = {"acks": 1, "sasl.mechanism": "PLAIN", METADATA_INTERVAL_MS: "1 min"}
    refused = r"acks: set by the .*; sasl\.mechanism: use kafka\.sasl\..*; topic\.metadata.*\.ms: should be a number"
    with pytest.raises(ValidationError, match=refused):
        KafkaSettings.model_validate({"options": options})


def test_options_of_clients_with_tls_are_all_settings_or_refused() -> None:
    own = TlsSettings(ca=__file__, certificate=__file__, key=__file__, key_password=SecretStr("x")).client_options()
    assert own.keys() - OWN_FIELD.keys() == TLS_FILES.keys()


@pytest.mark.parametrize(
    ("tls", "librdkafka", "java"), [({}, "https", "https"), ({"verify_hostname": False}, "none", "")]
)
def test_options_of_tls_verify_the_name_of_the_host_unless_the_setting_is_false(
    tls: dict[str, Any], librdkafka: str, java: str
) -> None:
    kafka = KafkaSettings.model_validate({"security_protocol": "SSL", "tls": tls})
    option = "ssl.endpoint.identification.algorithm"
    assert (kafka.client_options()[option], kafka_options.client_options(kafka)[option]) == (librdkafka, java)


def test_options_of_spark_with_oauthbearer_quote_the_login(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("first\nsecond\n")
    document = {"name": "p", "source": {"topic": "raw"}}
    kafka = {"security_protocol": "SASL_SSL", "sasl": by_token(scope="a", ca=str(authority))}
    options = kafka_options.client_options(PipelineSettings.model_validate({**document, "kafka": kafka}).kafka)
    package = "org.apache.kafka.common.security.oauthbearer"
    assert options["sasl.mechanism"] == "OAUTHBEARER"
    assert options["sasl.oauthbearer.token.endpoint.url"] == "https://id.example/token"
    assert options["sasl.login.callback.handler.class"] == f"{package}.OAuthBearerLoginCallbackHandler"
    assert options["sasl.jaas.config"] == (
        f'{package}.OAuthBearerLoginModule required clientId="pipelines" clientSecret="s3\\"cret" scope="a" '
        'ssl.truststore.type="PEM" ssl.truststore.certificates="first\\nsecond\\n";'
    )


def test_msk_iam_token_is_a_signed_request_of_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra msk is not installed")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary5b1d")
    token, expires_s = secured(MSK).client_options()["oauth_cb"]("")
    request = urlsplit(base64.urlsafe_b64decode(token + "==").decode())
    query = {name: values[0] for name, values in parse_qs(request.query).items()}
    assert (request.scheme, request.netloc) == ("https", "kafka.eu-west-1.amazonaws.com")
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert re.fullmatch("[0-9a-f]{64}", query["X-Amz-Signature"])
    assert 0 < expires_s - time.time() <= int(query["X-Amz-Expires"])
    assert "canary5b1d" not in request.query


def test_msk_iam_without_credentials_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_region: str) -> None:
        raise RuntimeError("Unable to locate credentials")

    signer = SimpleNamespace(MSKAuthTokenProvider=SimpleNamespace(generate_auth_token=fails))
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)
    with pytest.raises(
        ConfigurationError, match=r"kafka.sasl.msk_iam: OAuth token not set within 10 .* credentials of"
    ):
        connect_admin(secured(MSK))
    assert "kafka.sasl.msk_iam: no token, trying again: Unable to locate credentials" in caplog.text


def test_msk_iam_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigurationError, match=r"kafka.sasl.msk_iam: the signer .* with its extra `msk`"):
        check_files(secured(MSK))


def test_options_of_spark_with_msk_iam_are_those_of_the_java_library() -> None:
    options = kafka_options.client_options(secured(MSK))
    assert (options["security.protocol"], options["sasl.mechanism"]) == ("SASL_SSL", "AWS_MSK_IAM")
    assert options["sasl.jaas.config"] == "software.amazon.msk.auth.iam.IAMLoginModule required;"
