"""`skewless demo` as a user runs it: its result, its end, and the files and processes that remain."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from helpers import tools
from helpers.browser import Opened, open_page
from helpers.waiting import until

WAIT_S = 840.0
LINES = 3000


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Page views of 20 minutes, including one late and one invalid record."""
    file = tmp_path / "pages.tsv"
    lines = [f"{1_000_000_000_000 + 400 * number}\tpage {number % 7 * (number % 3)}" for number in range(LINES)]
    lines[1050] = f"{1_000_000_000_000}\tpage 0"
    lines[2000] = "no time at all"
    file.write_text("\n".join(lines) + "\n")
    return file


@contextmanager
def demo(temporary: Path, *args: str, log: IO[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run the demo in its own process session and a new folder, with an empty folder for temporary files.

    What it writes to stderr goes to the file `log`, if there is one, so that a test can read it while the demo runs.
    """
    temporary.mkdir()
    folder = temporary.with_name("work")
    folder.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-m", "skewless", "demo", *args],
        env=os.environ | {"TMPDIR": str(temporary), "SKEWLESS__ROUTER__WORKERS": "3"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=log or subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with child:
            yield child
    finally:
        for pid in of_session(child.pid):
            os.kill(pid, signal.SIGKILL)


def of_session(session: int) -> list[int]:
    """List the running processes of a session, without zombies that wait for their parent."""
    return [
        process.pid
        for process in psutil.process_iter(["status"])
        if process.pid and process.info["status"] != psutil.STATUS_ZOMBIE and _session(process.pid) == session
    ]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


@pytest.mark.thorough
@pytest.mark.spark
def test_demo_run_to_its_end_is_exact_and_leaves_nothing_behind(tmp_path: Path, pages: Path) -> None:
    tools.prometheus()
    tools.chromium()  # its installation may take longer than the demo
    args = ["--input", str(pages), "--grouping", "key", "--grouping", "shuffle", "--workers", "4", "--json"]
    args += ["--report", str(tmp_path / "report.html"), "--prometheus"]
    printed = tmp_path / "demo.log"
    with printed.open("w") as log, demo(tmp_path / "tmp", *args, log=log) as child:
        opened = open_live_page(printed)
        output, _ = child.communicate(timeout=WAIT_S)
        text = printed.read_text()
        assert child.returncode == 0, text
        assert of_session(child.pid) == []
    check_live_page(opened)
    assert list((tmp_path / "tmp").iterdir()) == []
    entries = json.loads(output)
    assert (entries["records"], entries["tuples"]) == (LINES, LINES - 2)
    assert (entries["late_tuples"], entries["unreadable_records"]) == (1, 1)
    assert (entries["dataset"], entries["window_s"], entries["workers"], entries["exact"]) == ("pages", 60, 4, True)
    counted = entries["run"]
    assert (counted["grouping"], counted["counted"]) == ("shuffle", LINES - 2)
    assert sum(counted["distribution"]["tuples_by_worker"]) == LINES - 2
    assert counted["memory_bytes"] > 0  # from the metrics of the processes
    assert 0 < counted["counting_s"] < counted["seconds"]
    assert counted["tuples_per_s"] == pytest.approx((LINES - 2) / counted["counting_s"])
    # By key, one of four workers gets at least 80 % of 400 tuples/s. It can do 100; the others get the other 73.
    # A busy machine slows every pipeline down, so the two are compared with each other.
    key, shuffle = entries["groupings"]["key"], entries["groupings"]["shuffle"]
    assert 0 < key["tuples_per_s"] < 180, text
    assert 1.3 * key["tuples_per_s"] < shuffle["tuples_per_s"] <= 401
    assert shuffle["waiting"] < key["waiting"]
    assert key["max_over_avg"] > 3.2
    assert shuffle["max_over_avg"] < 1.01
    assert key["replication_factor"] == 1
    assert "Groupings side by side: 400 tuples/s, 80 % of them of one key; 4 workers of 100 tuples/s each" in text
    assert "Traceback" not in text
    assert "unreadable records: 1 (" in text
    assert "set event_time.allowed_lateness_s to 399.601 or more" in text
    assert "scrapes every process" in text
    assert entries["report"] == str(tmp_path / "report.html")
    commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    assert [command.split()[0] for command in commands] == ["sqlite3", "skewless"]
    folder = tmp_path / "work"
    assert entries["database"] == str(folder / "skewless-demo.db")
    with closing(sqlite3.connect(entries["database"])) as connection:
        (query,) = re.findall('"(SELECT .*)"', commands[0])
        assert next(connection.execute(query))[0] == "page 0"
        assert connection.execute("SELECT sum(count) FROM pages").fetchone() == (LINES - 2,)
    shown = subprocess.run(
        [sys.executable, "-m", *shlex.split(commands[1])], cwd=folder, capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"(\S+Z  page \d+  count \d+  sum \d+\n){5}", shown.stdout)
    assert shown.stdout in text
    check_report((tmp_path / "report.html").read_text(encoding="utf-8"), text, (key, shuffle))


def check_report(page: str, text: str, groupings: Sequence[Mapping[str, Any]]) -> None:
    """Check that the report has the figures of the live stream that the terminal shows, and the same sentence."""
    assert "<h2>Load per worker over time</h2>" in page
    for terminal_row, report_row, measure, number_format in (
        ("tuples/s", "tuples completed per second", "tuples_per_s", ",.0f"),
        ("tuples that wait after 15 s", "tuples that waited at the end", "waiting", ",.0f"),
        ("most loaded worker / average", "most loaded worker / average", "max_over_avg", ".2f"),
        ("workers per key", "workers per key", "replication_factor", ".2f"),
    ):
        figures = [format(grouping[measure], number_format) for grouping in groupings]
        (printed,) = re.findall(f"{terminal_row} *\u2502 *(\\S+) \u2502 *(\\S+) ", text)
        cells = r"\s*<td[^>]*>(\S+)</td>\s*<td[^>]*>(\S+)</td>\s*</tr>"
        assert list(printed) == figures
        assert re.findall(f"<th scope=.row.>{report_row}</th>{cells}", page) == [tuple(figures)]
    sentence = re.findall("Of key and shuffle on the same input, shuffle completed the most tuples: .*", text)
    assert re.findall("<strong>(Of key .*)</strong>", page) == sentence
    assert "pages on topic" not in page.partition("<h2>Load per worker over time</h2>")[0]


@pytest.mark.spark
def test_demo_stopped_by_sigint_leaves_nothing_behind(tmp_path: Path, pages: Path) -> None:
    with demo(tmp_path / "tmp", "--input", str(pages), "--no-report") as child:
        assert child.stdout is not None
        assert any(line.startswith("Running key, partial_key and even at the same time") for line in child.stdout)
        # the demo, the broker, and a process per stage and grouping
        until(lambda: len(of_session(child.pid)) >= 14, limit_s=WAIT_S)
        stop(child, signal.SIGINT, 130)
    assert list((tmp_path / "tmp").iterdir()) == []


def stop(child: subprocess.Popen[str], number: signal.Signals, code: int) -> None:
    """Send the demo a signal. It must end with this code, without a message, and without a process."""
    child.send_signal(number)
    _, text = child.communicate(timeout=WAIT_S)
    assert (child.returncode, text) == (code, "")
    assert of_session(child.pid) == []


@pytest.mark.thorough
@pytest.mark.spark
def test_demo_of_one_grouping_stopped_by_sigterm_leaves_nothing_behind(tmp_path: Path, pages: Path) -> None:
    args = ["--input", str(pages), "--no-report", "--grouping", "even"]
    with demo(tmp_path / "tmp", *args) as child:
        until(lambda: len(of_session(child.pid)) >= 7, limit_s=WAIT_S)  # the demo, the broker, and the stages
        stop(child, signal.SIGTERM, 143)
    assert list((tmp_path / "tmp").iterdir()) == []


def open_live_page(printed: Path) -> Opened:
    """Open the page of a demo in a browser as soon as all its pipelines have figures. Its log names the address."""
    address = re.compile(r"The pipelines are shown live at (http://127\.0\.0\.1:\d+/)\n")
    until(lambda: address.match(printed.read_text()), limit_s=WAIT_S)
    (url,) = address.findall(printed.read_text())
    until(lambda: all(card["bars"] for card in cards(url)), limit_s=WAIT_S)
    return open_page(url)


def check_live_page(opened: Opened) -> None:
    """Check that the page has shown both groupings beside each other, with the overloaded worker."""
    assert opened.console == []
    shown = re.findall(r"<h2>(\w+)<span(.*?)</section>", opened.html, flags=re.DOTALL)[:2]  # one more may follow
    assert [name for name, _ in shown] == ["key", "shuffle"]
    assert [card.count('<div class="bar ') for _, card in shown] == [4, 4]
    levels = {name: set(re.findall(r'class="bar (\w+)"', card)) for name, card in shown}
    assert "overloaded" in levels["key"]
    assert "overloaded" not in levels["shuffle"]


def cards(url: str) -> list[dict[str, Any]]:
    """Return the pipelines on the page, or a card without bars before there are any."""
    try:
        with urllib.request.urlopen(f"{url}state", timeout=WAIT_S) as response:  # noqa: S310 - the address of the demo
            shown: list[dict[str, Any]] = json.loads(response.read())["cards"]
    except (OSError, http.client.HTTPException):  # the server ends connections that take long
        return [{"bars": []}]
    return shown or [{"bars": []}]


def test_demo_missing_input_file_ends_before_anything_starts(tmp_path: Path) -> None:
    with demo(tmp_path / "tmp", "--input", "/nowhere.txt") as child:
        output, text = child.communicate(timeout=WAIT_S)
    assert (child.returncode, output) == (2, "")
    assert text == "error: /nowhere.txt: no such file; check its name\n"
