"""PipelineRun: the processes of a pipeline on this machine, for the time of a `with` block."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local.folders import create_named
from skewless.lab.local.supervisor import Event, Supervisor
from skewless.operations.data_quality import MAX_LATE_SHARE
from skewless.operations.local_run import prepare, registered
from skewless.operations.run_counts import RunCounter, RunCounts, check_accepted
from skewless.operations.status import PipelineStatus, status

TICK_S = 0.1
RECENT_S = 300.0
"""Period in which a status counts late tuples, late records of a join and dead letters."""
log = logging.getLogger(__name__)


class PipelineRun:
    """Runs all stages of a pipeline, one process each (replicas too), as `skewless up` does.

    Used as a context manager: the processes run until the end of the block, and those that end are started again. Each
    writes its log to the folder `logs`. Starts and ends are logged at the level INFO of `skewless.api.run`.
    """

    def __init__(
        self, settings: PipelineSettings, file: Path | None, environ: Mapping[str, str], logs: Path, *, take_over: bool
    ) -> None:
        self.logs = logs
        self._settings = settings
        self._file = file
        self._environ = environ
        self._take_over = take_over
        self._supervision: _Supervision | None = None
        self._counter: RunCounter | None = None

    def __enter__(self) -> Self:
        self._counter = None
        self._start(drain=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        supervision, self._supervision = self._supervision, None
        if supervision is not None:
            supervision.stop()
            if error is None:
                supervision.raise_failure()

    def drain(self, timeout_s: float | None = None) -> RunCounts:
        """Process all records that the source has now, close all windows, end the processes, and return the counts.

        The processes are started again for that, as with `skewless up --drain`. Raises CheckFailedError if no record is
        in a result, because all are late or invalid, and UnreachableError if the end is not reached within `timeout_s`.
        """
        if self._supervision is None:
            raise RuntimeError("the pipeline runs only inside of its `with` block")
        self._supervision.stop()
        self._supervision.raise_failure()
        supervision, counter = self._start(drain=True)
        if not supervision.ended.wait(timeout_s):
            raise UnreachableError(f"pipeline {self._settings.name} has not reached the end within {timeout_s:g} s")
        supervision.raise_failure()
        counts = counter.counts(exact=True)
        check_accepted(counts)
        return counts

    def status(self) -> PipelineStatus:
        """Return the state of the stages: processes, lag, event time, load and problems, as of their last commits.

        Raises the error of a process that could not be started again.
        """
        if self._supervision is not None:
            self._supervision.raise_failure()
        now_ms = time.time_ns() // 1_000_000
        return status(self._settings, now_ms, recent_s=RECENT_S, max_lag_s=None, max_late_share=MAX_LATE_SHARE)

    def _start(self, *, drain: bool) -> tuple[_Supervision, RunCounter]:
        supervisor = prepare(self._settings, self._file, drain=drain, logs=self.logs, environ=self._environ)
        self._counter = self._counter or RunCounter(self._settings)
        self._supervision = _Supervision(self._settings, supervisor, take_over=self._take_over)
        return self._supervision, self._counter


class _Supervision:
    """A thread that starts the processes and watches them, because they end with the thread that has started them."""

    def __init__(self, settings: PipelineSettings, supervisor: Supervisor, *, take_over: bool) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._take_over = take_over
        self._stopping = threading.Event()
        self._started = threading.Event()
        self.ended = threading.Event()
        """Set when all processes have ended."""
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"pipeline {settings.name}", daemon=True)
        try:
            self._thread.start()
            self._started.wait()
            self.raise_failure()
        except BaseException:  # such as KeyboardInterrupt: the caller gets no object with which to stop them
            self.stop()
            raise

    def stop(self) -> None:
        """End the processes, and wait until they have."""
        self._stopping.set()
        self._thread.join()

    def raise_failure(self) -> None:
        """Raise the error that has ended the processes, if there was one."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(
                    registered(self._settings, self._supervisor, log.warning, take_over=self._take_over)
                )
                stack.callback(self._supervisor.stop)
                _log(self._supervisor.start())
                self._started.set()
                while not self._supervisor.done and not self._stopping.wait(TICK_S):
                    _log(self._supervisor.poll(time.monotonic()))
        except Exception as error:  # noqa: BLE001 - raised in the thread of the caller
            self._failure = error
            if self._started.is_set():  # the caller may be waiting for results
                log.error("all processes have ended: %s", error)  # noqa: TRY400 - the caller gets the traceback
        finally:
            self._started.set()
            self.ended.set()


def _log(events: list[Event]) -> None:
    for event in events:
        level = logging.WARNING if event.kind == "ended" else logging.INFO
        log.log(level, "%s: %s, %s", event.name, event.kind, event.detail)


def logs_folder(pipeline: str, folder: str | Path | None) -> Path:
    """Return the folder for logs: the given one, or a new one among the temporary files.

    Raises ConfigurationError if it cannot be created or written to.
    """
    if folder is None:
        return Path(tempfile.mkdtemp(prefix=f"skewless-{pipeline}-"))
    if not isinstance(folder, str | os.PathLike):
        raise ConfigurationError(f"log_dir: {folder!r} is not the path of a folder")
    create_named("log_dir", Path(folder))
    return Path(folder)
