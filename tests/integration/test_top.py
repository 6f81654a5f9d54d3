"""`skewless top` as a process, in a terminal and without one, for a pipeline that has run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

import skewless
from helpers.browser import open_page
from helpers.kafka import Pipeline, Source, zipf_records
from helpers.terminal import terminal
from helpers.waiting import without_waits

pytestmark = [pytest.mark.broker, pytest.mark.thorough]
LIMIT_S = 180
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
"""Escape sequences that switch to the alternate screen of a terminal, and back."""


@pytest.fixture(autouse=True)
def _children_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(skewless.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH")))))


@pytest.fixture(scope="module")
def pipeline(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(skewless.__file__).parents[1]))
        source = Source(broker, 2)
        source.send(zipf_records(2_000, 2, seed=5, keys=50))
        made = Pipeline(broker, tmp_path_factory.mktemp("top"), source)
        made.drain()
        yield made


def command(pipeline: Pipeline) -> list[str]:
    return ["top", "-f", str(pipeline.file), "--interval", "1s"]


@pytest.mark.parametrize(("end", "code"), [("q", 0), ("ctrl-c", 130), ("sigterm", 143)])
def test_top_in_a_terminal_leaves_it_as_it_was(pipeline: Pipeline, end: str, code: int) -> None:
    with terminal(command(pipeline)) as shown:
        before = termios.tcgetattr(shown.descriptor)
        shown.read_until(ENTER)
        shown.read_until(pipeline.name.encode())
        shown.resize(200, 50)
        if end == "sigterm":
            shown.process.send_signal(signal.SIGTERM)
        else:
            os.write(shown.descriptor, b"q" if end == "q" else b"\x03")
        shown.read_until(LEAVE)
        assert shown.process.wait(LIMIT_S) == code
        assert termios.tcgetattr(shown.descriptor) == before
        after = shown.output.rpartition(LEAVE)[2]
        assert b"Traceback" not in shown.output
        assert b"\x1b[?25l" not in after  # the cursor is visible


def test_top_without_a_terminal_prints_lines_until_the_pipeline_has_finished(pipeline: Pipeline) -> None:
    program = [sys.executable, "-m", "skewless", *command(pipeline)]
    with subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # A process that has ended may be a member of its group for a while.
        lines = [process.stdout.readline()]
        while f"{pipeline.name} running, " in lines[-1]:
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
    assert f"{pipeline.name} finished, last tick " in lines[-1]
    assert all("max/avg" in line for line in lines), lines


def test_top_in_a_browser_shows_loads_and_results_until_ctrl_c(pipeline: Pipeline) -> None:
    program = [sys.executable, "-m", "skewless", *command(pipeline), "--web", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(rf"{pipeline.name} is shown at (http://127\.0\.0\.1:(\d+)/) until Ctrl-C\n", line)
        assert found, line
        opened = open_page(found[1])
        again = subprocess.run([*program[:-1], found[2]], capture_output=True, text=True, check=False, timeout=LIMIT_S)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, without_waits(errors)) == (130, "")
    assert opened.console == []
    assert f"skewless top: {pipeline.name}" in opened.texts
    assert len(re.findall('<div class="bar ', opened.html)) == pipeline.settings.router.workers
    for title in ("Hot keys in the last tick", "Latest results", "Stages"):
        assert f"<h3>{title}</h3><table><thead>" in opened.html
    text = f"error: cannot listen on 127.0.0.1:{found[2]}: Address already in use; choose another port\n"
    assert (again.returncode, again.stdout, without_waits(again.stderr)) == (3, "", text)
