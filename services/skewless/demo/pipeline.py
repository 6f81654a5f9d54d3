"""One pipeline of the demo as processes, from start to the end of its topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from skewless import config
from skewless.demo.scrape import Scraper, Snapshot
from skewless.errors import CrashedError, JobFailedError
from skewless.local.supervisor import Event, Supervisor
from skewless.settings import PipelineSettings
from skewless.transport import topics

TICK_S = 0.1
SCRAPE_EVERY_S = 0.5
STALL_S = 60.0
"""Longest time without any progress."""
MOST_CRASHES = 5

Show = Callable[[float, Snapshot], None]
Watch = Callable[[Mapping[str, int]], None]
"""Called with the processes of a pipeline: name -> port of their metrics."""


def drain(
    settings: PipelineSettings,
    folder: Path,
    show: Show,
    tell: Callable[[Event], None],
    watch: Watch = lambda _ports: None,
) -> list[Snapshot]:
    """Run the stages of a pipeline until everything in its source is processed; return all snapshots.

    `show` is called every half second, `tell` when a process has crashed, `watch` at the start. Raises SkewlessError
    when nothing goes on for STALL_S seconds, or when processes crash again and again. Nothing runs on when it returns
    or raises.
    """
    topics.apply(settings)
    file = folder / f"{settings.name}.yaml"
    file.write_text(config.dump(settings))
    supervisor = Supervisor(file, settings, drain=True, logs=folder / settings.name)
    scraper = Scraper(supervisor.processes.values())
    care = _Care(supervisor.logs)
    snapshots: list[Snapshot] = []
    watch({f"{settings.name}/{name}": replica.metrics_port for name, replica in supervisor.processes.items()})
    try:
        supervisor.start()
        due = time.monotonic() + SCRAPE_EVERY_S
        while not supervisor.done:
            time.sleep(TICK_S)
            now = time.monotonic()
            for event in supervisor.poll(now):
                care.note(event, tell)
            if now >= due:
                snapshots.append(scraper.snapshot())
                care.moved(now, snapshots[-1])
                show(now, snapshots[-1])
                due = time.monotonic() + SCRAPE_EVERY_S
    finally:
        supervisor.stop()
    return snapshots


class _Care:
    """Gives up on a pipeline that gets nowhere."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._crashes = 0
        self._since = time.monotonic()
        self._seen: tuple[object, ...] = ()

    def note(self, event: Event, tell: Callable[[Event], None]) -> None:
        """Count crashes."""
        if event.kind != "ended":
            return
        tell(event)
        self._crashes += 1
        if self._crashes > MOST_CRASHES:
            raise CrashedError(f"{event.name} {event.detail}: processes crash again and again")

    def moved(self, now: float, snapshot: Snapshot) -> None:
        """See whether anything has changed since the last time."""
        seen = (snapshot.tuples, snapshot.load, snapshot.lag, snapshot.watermark_ms)
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif now - self._since > STALL_S:
            raise JobFailedError(f"nothing has moved for {STALL_S:.0f} s; --keep keeps the logs in {self._logs}")
