"""A real Ivy downloads the locked jars from a repository on this machine. Each is verified; errors have a remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from helpers.maven_server import MavenServer, jar_of, run_server, send
from helpers.waiting import WAIT_S
from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local import jars

CONTENT, OTHER_CONTENT = bytes(500_000), b"another jar"
THING, OTHER = jar_of("thing", CONTENT), jar_of("other", OTHER_CONTENT)
FILES = ["other-1.0.jar", "thing-1.0.jar"]
CHILD = """
import sys
from pathlib import Path
from skewless.lab.local import jars
jars.LOCK = Path(sys.argv[1])
jars.ensure("kafka")
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache and a lock of two jars in each test."""
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path / "cache"))
    for name in ("SKEWLESS_IVY_SETTINGS", "JAVA_TOOL_OPTIONS", "KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)
    lock = tmp_path / "jars.lock"
    lock.write_text(json.dumps({"kafka": [jar._asdict() for jar in (THING, OTHER)]}))
    monkeypatch.setattr(jars, "LOCK", lock)
    return tmp_path / "cache" / "jars"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenServer]:
    with run_server() as running:
        monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", running.address)
        running.serve(THING, send(CONTENT))
        running.serve(OTHER, send(OTHER_CONTENT))
        yield running


def ensure() -> tuple[Path, ...]:
    return jars.ensure.__wrapped__("kafka")


def in_cache(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != ".lock")


def start_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CHILD, str(jars.LOCK)], env=os.environ | {"PYTHONPATH": "services"})


def test_ensure_downloads_each_jar_once_and_a_damaged_one_again(server: MavenServer, cache: Path) -> None:
    paths = ensure()
    assert paths == (cache / "thing-1.0.jar", cache / "other-1.0.jar")
    assert [path.read_bytes() for path in paths] == [CONTENT, OTHER_CONTENT]
    assert in_cache(cache) == FILES
    assert ensure() == paths
    assert sorted(server.requests) == FILES
    paths[1].write_bytes(b"damaged jar")
    assert ensure()[1].read_bytes() == OTHER_CONTENT
    assert server.requests[2:] == ["other-1.0.jar"]


def test_two_processes_download_each_jar_once(server: MavenServer, cache: Path) -> None:
    processes = [start_process() for _ in range(2)]
    assert [process.wait(WAIT_S) for process in processes] == [0, 0]
    assert sorted(server.requests) == in_cache(cache) == FILES


def test_jar_with_another_checksum_is_named_and_not_kept(server: MavenServer, cache: Path) -> None:
    server.serve(THING, send(b"<html>log in first"), send(CONTENT))
    with pytest.raises(ConfigurationError, match=r"for org\.example:thing:1\.0 do not have the locked SHA-256"):
        ensure()
    assert in_cache(cache) == ["other-1.0.jar"]
    assert ensure()[0].read_bytes() == CONTENT


def test_lost_connection_is_one_line_and_the_next_run_downloads_the_rest(server: MavenServer, cache: Path) -> None:
    server.serve(THING, send(CONTENT[:1000], announced=len(CONTENT)), send(CONTENT))
    with pytest.raises(UnreachableError, match=r"FAILED.*thing.*run this again; behind a proxy") as error:
        ensure()
    assert "\n" not in str(error.value)
    assert ensure()[0].read_bytes() == CONTENT
    assert server.requests.count("other-1.0.jar") == 1
    assert in_cache(cache) == FILES


def test_killed_process_ends_ivy_and_leaves_its_jars_for_the_next_run(server: MavenServer, cache: Path) -> None:
    started, killed = threading.Event(), threading.Event()

    def stall(handler: BaseHTTPRequestHandler) -> None:
        send(OTHER_CONTENT[:3], announced=len(OTHER_CONTENT))(handler)
        started.set()
        killed.wait(WAIT_S)

    server.serve(OTHER, stall, send(OTHER_CONTENT))
    process = start_process()
    assert started.wait(WAIT_S)
    process.kill()
    process.wait()
    killed.set()
    assert [path.read_bytes() for path in ensure()] == [CONTENT, OTHER_CONTENT]
    assert server.requests.count("thing-1.0.jar") == 1
    assert in_cache(cache) == FILES


def test_jar_that_the_repository_lacks_is_named_with_the_settings_of_a_mirror(server: MavenServer) -> None:
    del server.answers[OTHER.file]
    with pytest.raises(UnreachableError, match=r"not found: org\.example#other;1\.0.*SKEWLESS_IVY_SETTINGS"):
        ensure()


def test_refused_connection_is_one_line_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", "http://127.0.0.1:1/maven2")
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1/maven2/org/example/.*Connection refused") as error:
        ensure()
    assert "\n" not in str(error.value)


def test_repository_behind_a_proxy_of_java_is_reached(server: MavenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", "http://mirror.invalid/maven2")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={server.server_port}")
    assert ensure()[0].read_bytes() == CONTENT


@pytest.mark.parametrize("address", ["mirror.example/maven2", "file:///etc", "https://", "https://me:secret@mirror/m"])
def test_address_that_is_not_one_of_a_mirror_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", address)
    with pytest.raises(ConfigurationError, match="must be an address of http or https without a user") as error:
        ensure()
    assert "secret" not in str(error.value)
