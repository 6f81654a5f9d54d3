"""Prometheus is found on PATH, or an error says how to install it. It runs, scrapes and leaves no processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from helpers import tools
from helpers.prometheus_api import Api
from helpers.waiting import until
from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local import loopback
from skewless.lab.local.prometheus import Prometheus

WAIT_S = 60.0


def test_prometheus_not_on_path_raises_one_line_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"^Prometheus is not on PATH: install it from https://.+$"):
        Prometheus(tmp_path).start()


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"answer 42\n")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def page_port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_loopback_page_behind_a_proxy_is_read_directly(page_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert loopback.read(f"http://127.0.0.1:{page_port}/metrics") == "answer 42\n"


@pytest.mark.thorough
def test_prometheus_process_scrapes_its_targets_and_ends_with_its_block(tmp_path: Path, page_port: int) -> None:
    tools.prometheus()
    before = {child.pid for child in psutil.Process().children()}
    with Prometheus(tmp_path, scrape_s=0.5) as running:
        running.watch({"one": page_port})
        until(lambda: Api(running.url).query("answer"), limit_s=WAIT_S)
        found = Api(running.url).query("answer")
        assert found[0].labels == {"__name__": "answer", "instance": "one", "job": "skewless"}
        assert found[0].values[0][1] == 42
        assert "g0.expr=answer" in running.page("answer")
    assert {child.pid for child in psutil.Process().children()} <= before


def test_prometheus_process_invalid_rules_raise_with_the_end_of_the_log(tmp_path: Path) -> None:
    tools.prometheus()
    (tmp_path / "rules.yaml").write_text("groups: [{name: a, rules: [{record: x, expr: 'sum('}]}]")
    with pytest.raises(UnreachableError, match="Prometheus did not start; its log"):
        Prometheus(tmp_path / "data", rules=[tmp_path / "rules.yaml"]).start()
