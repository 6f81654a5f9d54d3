"""The processes of a run end with its block, however it ends."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path

import pytest

import skewless as sk
from skewless.api import run


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


@pytest.mark.parametrize(
    ("failure", "error"), [(None, KeyboardInterrupt), (LookupError("a bug"), LookupError)], ids=["interrupt", "bug"]
)
def test_run_that_does_not_start_ends_its_processes_and_raises_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception | None, error: type[BaseException]
) -> None:
    supervisor = Starting(failure)
    monkeypatch.setattr(run, "prepare", lambda *_, **__: supervisor)
    monkeypatch.setattr(run, "registered", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(run, "RunCounter", lambda _settings: None)
    with pytest.raises(error), sk.Pipeline("clicks").up(log_dir=tmp_path):
        pass
    assert supervisor.stopped
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pipeline ")]
