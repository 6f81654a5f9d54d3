"""The section `registry`: which logins belong together, and which addresses are accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skewless.config import loader
from skewless.errors import ConfigurationError
from skewless.schema_registry.client import RegistryClient

URL = "https://registry:8081"
OAUTH = {"token_endpoint_url": "https://identity/token", "client_id": "p", "client_secret": "canary"}


def load(folder: Path, registry: dict[str, Any]) -> Any:
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps({"name": "p", "source": {"topic": "raw"}, "registry": registry}))
    return loader.load(file, {})


@pytest.mark.parametrize(
    ("registry", "problem"),
    [
        ({}, "registry.url: is required"),
        ({"url": "registry:8081"}, "registry.url: should be addresses of http or https"),
        ({"url": "https://user:canary@registry"}, "registry.url: write the address only"),
        ({"url": f"{URL},"}, "registry.url: should be addresses of http or https"),
        ({"url": "http://127.0.0.1:80x1"}, "registry.url: http://127.0.0.1:80x1 has an invalid host or port"),
        ({"url": "http://r:99999"}, "registry.url: http://r:99999 has an invalid host or port"),
        ({"url": "http://[::1"}, "registry.url: http://[::1 has an invalid host or port"),
        ({"url": "https:///x"}, "registry.url: https:///x has no valid host name"),
        ({"url": "https://:8081"}, "registry.url: https://:8081 has no valid host name"),
        ({"url": "http://a b:8081"}, "registry.url: http://a b:8081 has no valid host name"),
        ({"url": f"{URL}, http://r:80x1"}, "registry.url: http://r:80x1 has an invalid host or port"),
        ({"url": "https://user:1,canary@registry"}, "registry.url: write the address only"),
        ({"url": "https://user:canary,1@registry"}, "registry.url: write the address only"),
        (
            {"url": URL, "oauthbearer": {**OAUTH, "token_endpoint_url": "https://identity:44x/token"}},
            "registry.oauthbearer.token_endpoint_url: https://identity:44x/token has an invalid host or port",
        ),
        (
            {"url": URL, "oauthbearer": {**OAUTH, "token_endpoint_url": "https:///token"}},
            "registry.oauthbearer.token_endpoint_url: https:///token has no valid host name",
        ),
        ({"url": URL, "username": "u"}, "registry.password: username and password belong together"),
        ({"url": URL, "password": "canary"}, "registry.password: username and password belong together"),
        (
            {"url": URL, "username": "u", "password": "canary", "oauthbearer": OAUTH},
            "registry.oauthbearer: username is",
        ),
        ({"url": "http://r", "username": "u", "password": "canary"}, "registry.url: http would send the login"),
        ({"url": "http://r", "oauthbearer": OAUTH}, "registry.url: http would send the login unencrypted"),
        ({"url": f"{URL},http://r", "oauthbearer": OAUTH}, "registry.url: http would send the login unencrypted"),
        (
            {"url": URL, "oauthbearer": {**OAUTH, "token_endpoint_url": "http://identity/token"}},
            "registry.oauthbearer.token_endpoint_url: http would send the client secret",
        ),
        ({"url": "http://r", "tls": {"ca": "ca.pem"}}, "registry.tls: needs an address of https"),
        ({"url": URL, "tls": {"key": "k.pem"}}, "registry.tls: certificate and key belong together"),
    ],
)
def test_registry_with_settings_that_do_not_fit_is_refused(
    registry: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, registry)
    assert problem in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1]:8081",
        "https://registry",
        "https://registry:8080/apis/ccompat/v7",
        "http://a_b:8081, http://10.0.0.1:8081/",
    ],
)
def test_registry_with_a_good_address_is_accepted(url: str, tmp_path: Path) -> None:
    assert load(tmp_path, {"url": url}).registry.url == url


def test_address_that_only_the_client_refuses_is_an_error_of_the_settings(tmp_path: Path) -> None:
    client = RegistryClient(load(tmp_path, {"url": "http://1.2.3.400:8081"}).registry)
    with pytest.raises(
        ConfigurationError, match=r"registry: url .* is not valid: Invalid IPv4 address: '1\.2\.3\.400'"
    ):
        client.check()


def test_registry_secrets_are_hidden_in_the_effective_settings(tmp_path: Path) -> None:
    basic = load(tmp_path, {"url": "http://r", "username": "u", "password": "canary", "allow_unencrypted": True})
    token = load(tmp_path, {"url": URL, "oauthbearer": OAUTH})
    for settings in (basic, token):
        assert "canary" not in loader.dump(settings)
        assert "canary" not in repr(settings)
