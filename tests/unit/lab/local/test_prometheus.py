"""Prometheus is found or downloaded, or an error states why not. It runs, scrapes and leaves no files or processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from dashboards.prometheus_api import Api
from helpers.waiting import until
from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local import prometheus
from skewless.lab.local.prometheus import Prometheus

WAIT_S = 60.0
Tool = Callable[[str, str], None]


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Use an empty cache, and an empty folder as PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SKEWLESS_CACHE", str(tmp_path / "cache"))
    prometheus.find.cache_clear()
    yield tmp_path
    prometheus.find.cache_clear()


@pytest.fixture
def tool(nothing: Path) -> Tool:
    """Put a shell script on PATH."""

    def make(name: str, script: str) -> None:
        (nothing / "bin" / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        (nothing / "bin" / name).chmod(0o755)

    return make


UNPACK = 'mkdir -p "$3/usr/bin" && touch "$3/usr/bin/prometheus" "$3/usr/bin/promtool"'


def test_prometheus_search_executable_on_the_path_is_used(nothing: Path, tool: Tool) -> None:
    tool("prometheus", "")
    assert prometheus.find("prometheus") == nothing / "bin" / "prometheus"


def test_prometheus_search_without_apt_raises_one_line_with_a_remedy(nothing: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"there is no apt-get\): install it from https://prometheus.io"
    ) as error:
        prometheus.find("prometheus")
    assert "\n" not in str(error.value)


def test_prometheus_search_package_is_downloaded_once_into_the_cache(nothing: Path, tool: Tool) -> None:
    tool("apt-get", f'echo "$1" >> {nothing}/calls; touch prometheus.deb')
    tool("dpkg-deb", UNPACK)
    assert prometheus.find("promtool") == nothing / "cache" / "prometheus" / "usr" / "bin" / "promtool"
    assert prometheus.find("prometheus").is_file()
    assert (nothing / "calls").read_text() == "download\n"
    assert [path.name for path in (nothing / "cache").iterdir() if path.name.startswith(".")] == []


def test_prometheus_search_without_package_lists_updates_private_ones(nothing: Path, tool: Tool) -> None:
    tool("apt-get", '[ "$1" = download ] && exit 100; [ -d "${2#*=}/partial" ] || exit 1; touch prometheus.deb')
    tool("dpkg-deb", UNPACK)
    assert prometheus.find("prometheus").is_file()


def test_prometheus_search_failed_apt_raises_with_its_reason(nothing: Path, tool: Tool) -> None:
    tool("apt-get", "echo 'E: Could not resolve deb.example' >&2; exit 100")
    tool("dpkg-deb", UNPACK)
    with pytest.raises(ConfigurationError, match=r"apt-get failed: E: Could not resolve deb\.example"):
        prometheus.find("prometheus")


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"answer 42\n")

    def log_message(self, *args: object) -> None:
        pass


def test_prometheus_process_scrapes_its_targets_and_ends_with_its_block(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    before = {child.pid for child in psutil.Process().children()}
    try:
        with Prometheus(tmp_path, scrape_s=0.5) as running:
            running.watch({"one": server.server_port})
            until(lambda: Api(running.url).query("answer"), limit_s=WAIT_S)
            found = Api(running.url).query("answer")
            assert found[0].labels == {"__name__": "answer", "instance": "one", "job": "skewless"}
            assert found[0].values[0][1] == 42
            assert "answer" in running.page("answer")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert {child.pid for child in psutil.Process().children()} <= before


def test_prometheus_process_invalid_rules_raise_with_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("groups: [{name: a, rules: [{record: x, expr: 'sum('}]}]")
    with pytest.raises(UnreachableError, match="Prometheus did not start; its log"):
        Prometheus(tmp_path / "data", rules=[tmp_path / "rules.yaml"]).start()
