"""Runs `skewless stream` in this process, whose session of Spark it uses, while a thread observes it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from helpers.waiting import until
from skewless.cli.main import main

STARTED = "checkpoint in "
"""Part of the line that the command prints as soon as it handles signals."""


def run_query(log: Path, *arguments: str, meanwhile: Callable[[], None]) -> None:
    """Run the command until `meanwhile` has returned in a thread. It then gets SIGTERM, and must end with 0.

    Its output goes to `log`. While the thread runs a command of its own, a line may be in the output of that one.
    """
    log.write_text("")
    ended = threading.Event()

    def observe() -> None:
        until(lambda: ended.is_set() or STARTED in log.read_text())
        if ended.is_set():
            return
        try:
            meanwhile()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    # A command that has failed does not handle the signal any more.
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with ThreadPoolExecutor(1) as threads:
            observed = threads.submit(observe)
            code = _run(log, "stream", *arguments)
            ended.set()
            observed.result()
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert code == 0, log.read_text()


def _run(log: Path, *arguments: str) -> int:
    with log.open("w", buffering=1) as output, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main(arguments)
        except SystemExit as end:
            return int(end.code or 0)
    raise AssertionError  # the command exits
