"""Follows a page of the documentation as a user does: writes its files, and runs its commands in one shell."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.docs_blocks import blocks
from helpers.stage_hosts import share_host
from skewless.cli.main import main
from skewless.lab.local.folders import cache_folder

WAIT_S = 840.0
ENDED = "#ended "
FILES = {"yaml", "python", "jsonl"}
"""Languages of blocks that are files, if they have a name."""
EXPORT = re.compile(r"export (\w+)=(.*)")
TO_FILE = re.compile(r"(.+) > ([\w.]+)")
TEMPORARY = "/tmp/"  # noqa: S108 - what pages write there would be shared with other runs of the tests
START, STOP = "$(skewless broker start)", "skewless broker stop"
"""What a page does with a broker of its own."""


def follow(page: Path, folder: Path, broker: str) -> list[str]:
    """Return what each shell block printed. Blocks with a name are files; a shell block with a name is not run.

    `skewless` and `python` are in PATH, and the broker is that of the tests. Fails if a command fails.
    """
    work = folder / "work"
    steps = [_with_broker(step, broker) for step in _write_files(page, work)]
    return _run_all(steps, work, _environment(folder))


def follow_with_own_broker(page: Path, folder: Path) -> list[str]:
    """Do the same as `follow`, with the broker that the page starts."""
    environment, work = _environment(folder), folder / "work"
    try:
        return _run_all(_write_files(page, work), work, environment)
    finally:
        stop = [sys.executable, "-m", "skewless", "broker", "stop"]
        subprocess.run(stop, env=environment, capture_output=True, timeout=WAIT_S, check=True)


def _run_all(steps: list[str], work: Path, environment: dict[str, str]) -> list[str]:
    script = "\n".join(f"{step}echo '{ENDED}'" for step in steps)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [answer.strip() for answer in done.stdout.split(ENDED.strip())]


class Reader:
    """Runs commands in this process and on the broker of the tests, in a folder of the reader of a page.

    This costs a fraction of the CPU time of `follow`, where each command loads its code.
    """

    def __init__(self, folder: Path, broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._broker, self._monkeypatch = broker, monkeypatch
        share_host(monkeypatch)
        environment = _environment(folder)
        for name in os.environ.keys() - environment.keys():
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    def follow(self, page: Path, work: Path) -> list[str]:
        """Write the files of a page into a new folder, and return what each shell block without a name printed."""
        steps = _write_files(page, work)
        self._monkeypatch.chdir(work)
        return [self.run(step).strip() for step in steps]

    def run(self, script: str, code: int = 0, *, errors: bool = False) -> str:
        """Run commands, one per line. The last one ends with this code, and the others succeed.

        Returns what they print, without what they print to stderr unless `errors`.
        """
        *others, last = filter(None, script.splitlines())
        return "".join([*(self._run(line, 0, errors=errors) for line in others), self._run(last, code, errors=errors)])

    def _run(self, line: str, code: int, *, errors: bool) -> str:
        if exported := EXPORT.fullmatch(line):
            name, value = exported.groups()
            self._monkeypatch.setenv(name, self._broker if value == START else value)
            return ""
        if line == STOP:
            return ""
        if not line.startswith("skewless "):
            shell = ["bash", "-euo", "pipefail", "-c", line]
            done = subprocess.run(shell, capture_output=True, text=True, timeout=WAIT_S, check=False)
            assert done.returncode == code, f"{line}: {done.stdout}{done.stderr}"
            return done.stdout
        to_file = TO_FILE.fullmatch(line)
        result = CliRunner().invoke(main, shlex.split(to_file[1] if to_file else line)[1:])
        assert result.exit_code == code, f"{line}: {result.output}"
        if to_file:
            Path(to_file[2]).write_text(result.stdout)
            return result.stderr if errors else ""
        return result.output if errors else result.stdout


@contextlib.contextmanager
def set_up(page: Path, folder: Path, broker: str) -> Iterator[tuple[dict[str, str], Callable[[], None]]]:
    """Write the files of a page into the new folder `work`, and run its first shell block on the broker of the tests.

    Yields the environment of a program that is started in the same shell, and a function that ends the programs that
    the block has left running. All of them end with the block.
    """
    environment = _environment(folder)
    step, *_ = _write_files(page, folder / "work")
    script = f"{_with_broker(step, broker)}echo '{ENDED}'; wait"
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder / "work",
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(WAIT_S)

    assert shell.stdout
    try:
        assert shell.stdout.readline().strip() == ENDED.strip()
        yield environment | {"KAFKA_BOOTSTRAP_SERVERS": broker}, end
    finally:
        end()
        shell.stdout.close()


def _with_broker(step: str, broker: str) -> str:
    """Return the step with this broker instead of one that it starts and stops."""
    return step.replace(START, broker).replace(STOP, ":")


def _write_files(page: Path, work: Path) -> list[str]:
    """Write the files of a page into a new folder, which replaces /tmp, and return its shell blocks."""
    work.mkdir()
    steps = []
    for block in blocks(page):
        text = block.text.replace(TEMPORARY, f"{work}/")
        if block.language in FILES and block.name:
            (work / block.name).write_text(text)
        elif block.language == "sh" and not block.name:
            steps.append(text)
    return steps


def path_with_programs(folder: Path) -> str:
    """Return a PATH with `skewless` and `python`, which are written to the new folder `bin`."""
    programs = folder / "bin"
    programs.mkdir()
    for name, call in {"skewless": " -m skewless", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable}{call} "$@"\n')
        (programs / name).chmod(0o755)
    return f"{programs}{os.pathsep}{os.environ['PATH']}"


def _environment(folder: Path) -> dict[str, str]:
    own = {
        "PATH": path_with_programs(folder),
        "SKEWLESS_CACHE": str(cache_folder()),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("SKEWLESS__")} | own
