"""Runs one pipeline of the demo as processes until its source topic is processed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from skewless.config import loader, topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CrashedError, JobFailedError
from skewless.lab.demo.prometheus_scraper import Scraper, Snapshot
from skewless.lab.local.stage_host import StageHost
from skewless.lab.local.supervisor import Event, Supervisor

POLL_S = 0.1
SCRAPE_INTERVAL_S = 0.5
STALL_TIMEOUT_S = 60.0
"""Maximum time without progress."""
MAX_CRASHES = 5

OnSnapshot = Callable[[float, Snapshot], None]
"""(time, snapshot) -> None"""
OnCrash = Callable[[Event], None]
OnStart = Callable[[Mapping[str, int]], None]
"""Called with the processes of a pipeline: name -> port of the metrics."""


def drain(  # noqa: PLR0913 - three of them are callbacks
    settings: PipelineSettings,
    folder: Path,
    on_snapshot: OnSnapshot,
    on_crash: OnCrash,
    on_start: OnStart = lambda _ports: None,
    *,
    host: StageHost | None = None,
) -> list[Snapshot]:
    """Run the stages of a pipeline until everything in its source is processed, and return all snapshots.

    The host starts the processes, by default one of its own. Calls `on_start` once, `on_snapshot` every
    SCRAPE_INTERVAL_S, and `on_crash` when a process has crashed. Raises JobFailedError after STALL_TIMEOUT_S without
    progress, CrashedError after more than MAX_CRASHES crashes, and the errors of `Supervisor.poll`. All processes have
    ended when it returns or raises.
    """
    topic_plan.apply(settings)
    file = folder / f"{settings.name}.yaml"
    file.write_text(loader.dump(settings))
    supervisor = Supervisor(file, settings, drain=True, logs=folder / settings.name, host=host)
    scraper = Scraper(supervisor.processes.values())
    stall_detector = _StallDetector(supervisor.logs)
    snapshots: list[Snapshot] = []
    on_start({f"{settings.name}/{name}": replica.metrics_port for name, replica in supervisor.processes.items()})
    try:
        supervisor.start()
        next_scrape = time.monotonic() + SCRAPE_INTERVAL_S
        while not supervisor.done:
            time.sleep(POLL_S)
            now = time.monotonic()
            for event in supervisor.poll(now):
                if event.kind == "ended":
                    on_crash(event)
                    stall_detector.count_crash(event)
            if now >= next_scrape:
                snapshots.append(scraper.snapshot())
                stall_detector.check_progress(now, snapshots[-1])
                on_snapshot(now, snapshots[-1])
                next_scrape = time.monotonic() + SCRAPE_INTERVAL_S
    finally:
        supervisor.stop()
    return snapshots


class _StallDetector:
    """Raises an error when a pipeline makes no progress or crashes repeatedly."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._crashes = 0
        self._last_change = time.monotonic()
        self._last_progress: tuple[object, ...] = ()

    def count_crash(self, event: Event) -> None:
        """Count a crash. Raises CrashedError after more than MAX_CRASHES."""
        self._crashes += 1
        if self._crashes > MAX_CRASHES:
            raise CrashedError(f"{event.name} {event.detail}: processes crash repeatedly")

    def check_progress(self, now: float, snapshot: Snapshot) -> None:
        """Compare the snapshot with the last one. Raises JobFailedError after STALL_TIMEOUT_S without a change."""
        progress = (snapshot.tuples, snapshot.load, snapshot.waiting, snapshot.watermark_ms)
        if progress != self._last_progress:
            self._last_progress, self._last_change = progress, now
        elif now - self._last_change > STALL_TIMEOUT_S:
            raise JobFailedError(f"no progress for {STALL_TIMEOUT_S:.0f} s; with --keep, the logs stay in {self._logs}")
