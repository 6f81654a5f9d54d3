"""Jars from a Maven repository are verified, downloaded in parallel and only once; errors name the cause."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from helpers.maven_server import MavenServer, jar_of, refuse, run_server, send, write_lock
from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local import jar_download, jars

CONTENT = b"the jar" * 50_000
THING, OTHER = jar_of("thing", CONTENT), jar_of("other", b"another jar")
VARIABLES = ("SKEWLESS_IVY_SETTINGS", "JAVA_TOOL_OPTIONS", "HTTP_PROXY", "http_proxy")
CHILD = """
import sys
from pathlib import Path
sys.modules["pyspark"] = None  # as if it was not installed
from skewless.lab.local import jars
jars.LOCK = Path(sys.argv[1])
jars.ensure("kafka")
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenServer]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with run_server() as running:
        monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", running.address)
        yield running


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache, a lock of two jars, and no pauses between attempts in each test."""
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "LOCK", write_lock(tmp_path / "jars.lock", THING, OTHER))
    monkeypatch.setattr(jar_download, "PAUSES_S", (0.0, 0.0))
    return tmp_path / "cache" / "jars"


def ensure() -> tuple[Path, ...]:
    return jars.ensure.__wrapped__("kafka")


def in_cache(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def start_process(tmp_path: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": "services"}
    return subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "jars.lock")], env=environment)


def test_ensure_with_an_empty_cache_downloads_each_jar_once(server: MavenServer, cache: Path) -> None:
    server.serve(THING, send(CONTENT))
    server.serve(OTHER, send(b"another jar"))
    paths = ensure()
    assert paths == (cache / "thing-1.0.jar", cache / "other-1.0.jar")
    assert [path.read_bytes() for path in paths] == [CONTENT, b"another jar"]
    assert in_cache(cache) == [".lock", "other-1.0.jar", "thing-1.0.jar"]
    assert ensure() == paths
    assert sorted(server.requests) == sorted(f"/maven2/{jar.path}" for jar in (THING, OTHER))


def test_ensure_with_a_damaged_jar_downloads_it_again(server: MavenServer, cache: Path) -> None:
    server.serve(THING, send(CONTENT))
    cache.mkdir(parents=True)
    (cache / "thing-1.0.jar").write_bytes(b"damaged")
    (cache / "other-1.0.jar").write_bytes(b"another jar")
    assert ensure()[0].read_bytes() == CONTENT
    assert server.requests == [f"/maven2/{THING.path}"]


def test_ensure_with_two_jars_downloads_them_at_the_same_time(server: MavenServer) -> None:
    both = threading.Barrier(2, timeout=20)

    def after_both(handler: BaseHTTPRequestHandler, content: bytes) -> None:
        both.wait()
        send(content)(handler)

    server.serve(THING, lambda handler: after_both(handler, CONTENT))
    server.serve(OTHER, lambda handler: after_both(handler, b"another jar"))
    assert len(ensure()) == 2


def test_jar_with_another_checksum_is_named_and_not_kept(server: MavenServer, cache: Path) -> None:
    server.serve(THING, send(b"<html>log in first"))
    server.serve(OTHER, send(b"another jar"))
    with pytest.raises(ConfigurationError, match=r"thing-1\.0\.jar.*SHA-256.*locked for org\.example:thing:1\.0"):
        ensure()
    assert not [name for name in in_cache(cache) if "thing" in name]
    assert server.requests.count(f"/maven2/{THING.path}") == 1


def test_jar_that_the_repository_lacks_names_the_address_and_the_setting(server: MavenServer, cache: Path) -> None:
    server.serve(THING, send(CONTENT))
    expected = rf"{OTHER.path}: the server responded with 404 .*SKEWLESS_MAVEN_REPOSITORY"
    with pytest.raises(ConfigurationError, match=expected):
        ensure()
    assert server.requests.count(f"/maven2/{OTHER.path}") == 1
    assert not [name for name in in_cache(cache) if name.endswith(".part")]


@pytest.mark.parametrize("failure", [refuse(503), send(CONTENT[:1000], announced=len(CONTENT))])
def test_lost_connection_or_busy_server_is_tried_again(server: MavenServer, failure: object) -> None:
    server.answers[f"/maven2/{THING.path}"] = [failure, failure, send(CONTENT)]  # type: ignore[list-item]
    server.serve(OTHER, send(b"another jar"))
    assert ensure()[0].read_bytes() == CONTENT
    assert server.requests.count(f"/maven2/{THING.path}") == 3


def test_connection_that_is_always_lost_leaves_the_other_jars_for_the_next_run(
    server: MavenServer, cache: Path
) -> None:
    server.serve(THING, send(CONTENT[:1000], announced=len(CONTENT)))
    cache.mkdir(parents=True)
    (cache / "other-1.0.jar").write_bytes(b"another jar")
    with pytest.raises(UnreachableError, match=rf"connection closed after 1000 of {len(CONTENT)} bytes"):
        ensure()
    assert in_cache(cache) == [".lock", "other-1.0.jar"]


def test_refused_connection_is_one_line_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SKEWLESS_MAVEN_REPOSITORY", "http://127.0.0.1:1/maven2")
    expected = r"http://127\.0\.0\.1:1/maven2/org/example/.*Connection refused.*HTTPS_PROXY.*SKEWLESS_MAVEN_REPOSITORY"
    with pytest.raises(UnreachableError, match=expected) as error:
        ensure()
    assert "\n" not in str(error.value)


def test_two_processes_without_pyspark_download_each_jar_once(server: MavenServer, tmp_path: Path, cache: Path) -> None:
    server.serve(THING, send(CONTENT))
    server.serve(OTHER, send(b"another jar"))
    processes = [start_process(tmp_path) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert sorted(server.requests) == sorted(f"/maven2/{jar.path}" for jar in (THING, OTHER))
    assert in_cache(cache) == [".lock", "other-1.0.jar", "thing-1.0.jar"]


def test_killed_process_leaves_its_verified_jars_for_the_next_run(
    server: MavenServer, tmp_path: Path, cache: Path
) -> None:
    started, killed = threading.Event(), threading.Event()

    def stall(handler: BaseHTTPRequestHandler) -> None:
        send(CONTENT[:200_000], announced=len(CONTENT))(handler)
        started.set()
        killed.wait(60)

    server.serve(THING, stall, send(CONTENT))
    server.serve(OTHER, send(b"another jar"))
    process = start_process(tmp_path)
    assert started.wait(60)
    while not (cache / "other-1.0.jar").exists():
        assert process.poll() is None
    process.kill()
    process.wait()
    killed.set()
    assert in_cache(cache) == [".lock", ".thing-1.0.jar.part", "other-1.0.jar"]
    assert ensure()[0].read_bytes() == CONTENT
    assert in_cache(cache) == [".lock", "other-1.0.jar", "thing-1.0.jar"]
    assert server.requests.count(f"/maven2/{OTHER.path}") == 1
