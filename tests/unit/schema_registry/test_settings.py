"""The section `registry`: which logins belong together, and which addresses are accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skewless.config import loader
from skewless.errors import ConfigurationError

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


def test_registry_secrets_are_hidden_in_the_effective_settings(tmp_path: Path) -> None:
    basic = load(tmp_path, {"url": "http://r", "username": "u", "password": "canary", "allow_unencrypted": True})
    token = load(tmp_path, {"url": URL, "oauthbearer": OAUTH})
    for settings in (basic, token):
        assert "canary" not in loader.dump(settings)
        assert "canary" not in repr(settings)
