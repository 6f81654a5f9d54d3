"""Logins of `kafka`: which settings fit together, and the options of the clients that result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from skewless import login_settings
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.kafka.settings import OWN_FIELD, KafkaSettings
from skewless.kafka.validate_options import check_files
from skewless.spark import kafka_options

TOKENS = {"token_endpoint_url": "https://id.example/token", "client_id": "pipelines", "client_secret": 's3"cret'}


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


@pytest.mark.parametrize("option", [name for name in OWN_FIELD if "oauthbearer" in name or name.startswith("https")])
def test_options_of_oauthbearer_that_have_a_setting_are_refused(option: str) -> None:
    with pytest.raises(ValidationError, match=f"{option}: use kafka.sasl.oauthbearer"):
        KafkaSettings.model_validate({"options": {option: "x"}})


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
