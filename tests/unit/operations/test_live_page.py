"""The page of pipelines in a browser: who may read it, and what Chromium shows of it."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import msgspec
import pytest

from helpers.browser import open_page
from skewless.errors import UnreachableError
from skewless.operations.live_page.cards import Card, CardTable, bars
from skewless.operations.live_page.server import LivePage, served

HOSTILE = '<img src="http://127.0.0.1:9/x">&amp;'
KEY = Card(
    "clicks-key",
    "running",
    figures=[("tuples/s", "255")],
    bars=bars([800, 100, 50, 50]),
    tables=[CardTable("Hot keys", ("key", "tuples"), [(HOSTILE, "700")])],
    notes=[("problem", "router: no process runs")],
)
EVEN = Card("clicks-even", "running", figures=[("tuples/s", "844")], bars=bars([250, 320, 180, 250]))


@pytest.fixture
def page() -> LivePage:
    shown = LivePage("two groupings", 0.5)
    shown.show([KEY, EVEN])
    return shown


def get(url: str, path: str, headers: Mapping[str, str], method: str = "GET") -> http.client.HTTPResponse:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 80, timeout=60)
    connection.request(method, path, headers=dict(headers))
    return connection.getresponse()


def test_bars_without_rows_are_even_and_empty() -> None:
    assert [(bar.relative, bar.level) for bar in bars([0, 0])] == [(0, "even")] * 2
    assert [bar.level for bar in bars([150, 125, 124, 1])] == ["overloaded", "high", "even", "even"]


def test_page_in_a_browser_shows_the_pipelines_beside_each_other_without_other_resources(page: LivePage) -> None:
    with served(page) as url:
        opened = open_page(url)
    assert opened.console == []
    assert '<h1 id="title">two groupings</h1>' in opened.html
    names, states = re.findall(r"<h2>([\w-]+)<span", opened.html), re.findall(r'"state (\w+)"', opened.html)
    assert (names, states) == (["clicks-key", "clicks-even"], ["running", "running"])
    widths = re.findall(r'class="bar (\w+)" style="width: ([\d.]+)%', opened.html)
    # The largest load of all pipelines, 3.2 times the average, fills its bar.
    assert [(level, float(width)) for level, width in widths] == [
        *(("overloaded", 100.0), ("even", 12.5), ("even", 6.25), ("even", 6.25)),
        *(("even", 31.25), ("high", 40.0), ("even", 22.5), ("even", 31.25)),
    ]
    assert "255 tuples/s" in " ".join(reversed(re.findall(r"<d[td]>([^<]*)<", opened.html)[:2]))
    assert "problem: router: no process runs" in opened.texts
    assert HOSTILE in opened.texts
    assert "<img" not in opened.html


def test_page_in_a_browser_reports_an_error_above_the_last_state(page: LivePage) -> None:
    page.show([EVEN], "no answer from Kafka")
    with served(page) as url:
        assert "two groupings error: no answer from Kafka clicks-even running" in open_page(url).texts


def test_page_of_this_machine_answers_only_requests_to_its_names(page: LivePage) -> None:
    with served(page) as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        for host in ("localhost", "127.0.0.1:80", "[::1]:80"):
            assert get(url, "/state", {"Host": host}).status == 200
        for host in ("example.org", "localhost.example.org", "10.0.0.1", "[", ""):
            refused = get(url, "/state", {"Host": host})
            assert (refused.status, refused.read()) == (403, b"open the page as localhost or 127.0.0.1\n")


def test_page_of_another_address_answers_only_with_its_token(page: LivePage) -> None:
    with served(page, address="0.0.0.0") as url:  # noqa: S104 - the token protects it
        token = url.partition("?token=")[2]
        assert len(token) >= 32
        for path in ("/", "/state", "/page.js", "/?token=x", f"/state?token={token}"):
            refused = get(url, path, {"Host": "example.org"})
            if token in path:  # only the address of the page itself logs in
                continue
            assert (refused.status, b"token" in refused.read()) == (403, True)
        opened = get(url, f"/?token={token}", {})
        cookie = opened.getheader("Set-Cookie") or ""
        assert (opened.status, opened.getheader("Location")) == (303, "/")
        assert cookie == f"skewless={token}; HttpOnly; SameSite=Strict; Path=/"
        assert get(url, "/state", {"Cookie": f"other=1; skewless={token}"}).status == 200
        assert get(url, "/state", {"Cookie": f"skewless={token}x"}).status == 403
    with served(page, address="0.0.0.0") as again:  # noqa: S104 - as above
        assert again.partition("?token=")[2] != token


def test_page_forbids_resources_of_others_and_is_read_only(page: LivePage) -> None:
    with served(page) as url:
        shown = get(url, "/", {})
        assert "default-src 'none'" in (shown.getheader("Content-Security-Policy") or "")
        assert get(url, "/state", {}, "POST").status == 405
        head = get(url, "/state", {}, "HEAD")
        assert (head.status, head.read()) == (200, b"")
        assert get(url, "/server.py", {}).status == 404
        assert get(url, "/../server.py", {}).status == 404
        state = msgspec.json.decode(get(url, "/state", {}).read())
        assert [card["name"] for card in state["cards"]] == ["clicks-key", "clicks-even"]


@pytest.fixture
def occupied() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_page_on_a_port_in_use_names_it_in_one_line(page: LivePage, occupied: int) -> None:
    with pytest.raises(UnreachableError) as raised, served(page, port=occupied):
        pass
    assert str(raised.value) == f"cannot listen on 127.0.0.1:{occupied}: Address already in use; choose another port"
