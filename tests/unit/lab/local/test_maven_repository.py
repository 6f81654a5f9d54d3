"""The environment selects the Maven repository, its credentials and the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.maven_server import MavenServer, redirect, run_server, send
from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local.maven_repository import CENTRAL, MavenRepository, base_address

MIRROR = "https://mirror.example/maven2"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
IVY = """<ivysettings><resolvers><chain name="all"><filesystem name="local"/>{}</chain></resolvers></ivysettings>"""


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SKEWLESS_MAVEN_REPOSITORY", "SKEWLESS_IVY_SETTINGS", "JAVA_TOOL_OPTIONS", *PROXIES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[MavenServer]:
    with run_server() as running:
        yield running


def read(address: str, path: str = "a.jar") -> bytes:
    return b"".join(MavenRepository(address).read(path))


def use_ivy_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resolver: str) -> None:
    (tmp_path / "settings.xml").write_text(IVY.format(resolver))
    monkeypatch.setenv("SKEWLESS_IVY_SETTINGS", str(tmp_path / "settings.xml"))


def test_base_address_is_the_mirror_of_the_environment_or_maven_central(monkeypatch: pytest.MonkeyPatch) -> None:
    assert base_address() == CENTRAL
    monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", f"{MIRROR}/")
    assert base_address() == MIRROR


@pytest.mark.parametrize("address", ["mirror.example/maven2", "file:///etc", "https://"])
def test_base_address_of_another_scheme_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", address)
    with pytest.raises(ConfigurationError, match="SKEWLESS_MAVEN_REPOSITORY"):
        base_address()


def test_mirror_of_ivy_settings_is_the_base_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ivy_settings(tmp_path, monkeypatch, f'<ibiblio name="mirror" m2compatible="true" root="{MIRROR}/"/>')
    assert base_address() == MIRROR
    monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", "https://other.example")
    assert base_address() == "https://other.example"


@pytest.mark.parametrize("resolver", ["", '<ibiblio name="a"/>', '<ibiblio name="a" root="${mirror}"/>'])
def test_ivy_settings_without_a_plain_address_name_the_setting_to_use(
    resolver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_ivy_settings(tmp_path, monkeypatch, resolver)
    with pytest.raises(ConfigurationError, match=r"settings\.xml has no ibiblio.*set SKEWLESS_MAVEN_REPOSITORY"):
        base_address()


@pytest.mark.parametrize("content", [None, "<ivysettings>"])
def test_unreadable_ivy_settings_are_an_error_of_one_line(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content:
        (tmp_path / "settings.xml").write_text(content)
    monkeypatch.setenv("SKEWLESS_IVY_SETTINGS", str(tmp_path / "settings.xml"))
    with pytest.raises(ConfigurationError, match="SKEWLESS_IVY_SETTINGS: cannot read") as error:
        base_address()
    assert "\n" not in str(error.value)


def test_credentials_are_sent_to_the_mirror_alone_and_are_in_no_message(server: MavenServer) -> None:
    server.answers = {
        "/maven2/a.jar": [redirect(f"http://localhost:{server.server_port}/elsewhere")],
        "/elsewhere": [send(b"content")],
    }
    address = server.address.replace("http://", "http://anna:p%40ss@")
    assert read(address) == b"content"
    assert server.authorizations == ["Basic YW5uYTpwQHNz", None]
    assert MavenRepository(address).address == server.address
    with pytest.raises(ConfigurationError, match="404") as error:
        read(address, "missing.jar")
    assert "anna" not in str(error.value)
    assert "ss@" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "http://127.0.0.1:{port}"),
        ("JAVA_TOOL_OPTIONS", "-Xmx1g -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={port}"),
    ],
)
def test_proxy_of_the_environment_or_of_java_is_used(
    name: str, value: str, server: MavenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value.format(port=server.server_port))
    server.answers["http://mirror.invalid/maven2/a.jar"] = [send(b"content")]
    assert read("http://mirror.invalid/maven2") == b"content"


def test_host_of_java_without_proxy_is_reached_directly(server: MavenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=1 -Dhttp.nonProxyHosts=*.0.1")
    server.answers["/maven2/a.jar"] = [send(b"content")]
    assert read(server.address) == b"content"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=1 -Dhttp.nonProxyHosts=a|b")
    with pytest.raises(UnreachableError, match="Connection refused"):
        read(server.address)
