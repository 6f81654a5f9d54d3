"""The processes of a run end with its block, however it ends."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from pathlib import Path

import pytest

import skewless as sk
from helpers.waiting import until
from skewless.api import run
from skewless.errors import CrashedError, UnreachableError


class GivingUp:
    """A supervisor with a process that cannot be started again."""

    done = False

    def start(self) -> list[object]:
        return []

    def poll(self, _now: float) -> list[object]:
        raise CrashedError("router-0 ended with exit code 70")

    def stop(self) -> None:
        pass


class Starting:
    """A supervisor that is interrupted, as by Ctrl-C, or fails while it starts its processes."""

    done = False

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.stopped = False

    def start(self) -> list[object]:
        if self.failure is not None:
            raise self.failure
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return []

    def poll(self, _now: float) -> list[object]:
        return []

    def stop(self) -> None:
        self.stopped = True


class Endless(Starting):
    """A supervisor whose processes run until they are stopped."""

    def start(self) -> list[object]:
        return []


def supervise(supervisor: Starting | GivingUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "prepare", lambda *_, **__: supervisor)
    monkeypatch.setattr(run, "registered", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(run, "RunCounter", lambda _settings: None)


@pytest.mark.parametrize(
    ("failure", "error"), [(None, KeyboardInterrupt), (LookupError("a bug"), LookupError)], ids=["interrupt", "bug"]
)
def test_run_that_does_not_start_ends_its_processes_and_raises_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception | None, error: type[BaseException]
) -> None:
    supervisor = Starting(failure)
    supervise(supervisor, monkeypatch)
    with pytest.raises(error), sk.Pipeline("clicks").up(log_dir=tmp_path):
        pass
    assert supervisor.stopped
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pipeline ")]


def test_run_whose_processes_end_while_results_are_awaited_logs_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    supervise(GivingUp(), monkeypatch)
    with pytest.raises(CrashedError), sk.Pipeline("clicks").up(log_dir=tmp_path):
        until(lambda: caplog.records)
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.ERROR, "all processes have ended: router-0 ended with exit code 70")
    ]


def test_run_drain_that_does_not_reach_the_end_in_its_time_is_refused_and_ends_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Endless()
    supervise(supervisor, monkeypatch)
    ending = pytest.raises(UnreachableError, match=r"^pipeline clicks has not reached the end within 0\.05 s")
    with ending, sk.Pipeline("clicks").up(log_dir=tmp_path) as running:
        running.drain(timeout_s=0.05)
    assert supervisor.stopped


def test_run_log_dir_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "logs"):
        with pytest.raises(sk.ConfigurationError, match=r"^log_dir: .*file.*: cannot be created or written to"):
            sk.Pipeline("clicks").up(log_dir=folder)
