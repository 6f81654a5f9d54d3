"""A stage's process as others see it, from before it has heard of Kafka to its end."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from skewless import __version__
from skewless.settings import PipelineSettings
from skewless.transport.app import Wiring
from skewless.watch.collector import ListCollector
from skewless.watch.health import Health
from skewless.watch.samples import Reader
from skewless.watch.server import Page, application, served


class Watched:
    """Serves metrics, probes and version of one process."""

    def __init__(self, stage: str, settings: PipelineSettings, instance: int) -> None:
        self._settings = settings.metrics
        self._labels = {"pipeline": settings.name, "stage": stage}
        self._who = {**self._labels, "instance": instance}
        self.health = Health(settings.metrics.stuck_after_s)
        self._reader = Reader(stage, self.health)

    def served(self) -> AbstractContextManager[int]:
        """Serve while the block runs, if a port is set; ConfigurationError when it cannot be had."""
        app = application(ListCollector(self._reader.read, self._labels), self._pages())
        return served(app, address=self._settings.address, port=self._settings.port)

    def follow(self, wiring: Wiring) -> None:
        """Tell of this from now on."""
        self.health.wiring = self._reader.wiring = wiring

    @contextmanager
    def on(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Follow the loop on which the stage runs and this is called, as long as the block does."""
        with self._reader.on(loop), self.health.beating():
            yield

    def _pages(self) -> dict[str, Callable[[], Page]]:
        def told(name: str, reasons: list[str]) -> Page:
            return (503 if reasons else 200), {name: not reasons, "reasons": reasons, **self._who}

        return {
            "/livez": lambda: told("alive", self.health.why_not_alive()),
            "/readyz": lambda: told("ready", self.health.why_not_ready()),
            "/version": lambda: (200, {"version": __version__, "python": platform.python_version(), **self._who}),
        }
