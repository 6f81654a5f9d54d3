"""Monitoring of a stage process: metrics, health checks and version, available before Kafka is connected."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from skewless import __version__
from skewless.engine.app import StageRuntime
from skewless.monitoring.collector import MetricsCollector
from skewless.monitoring.health import Health
from skewless.monitoring.metrics_reader import MetricsReader
from skewless.monitoring.server import Page, application, serve_http
from skewless.monitoring.settings import MetricsSettings


class StageMonitor:
    """Serves the metrics, health checks and version of one process."""

    def __init__(self, settings: MetricsSettings, *, pipeline: str, stage: str, instance: int) -> None:
        self._settings = settings
        self._labels = {"pipeline": pipeline, "stage": stage}
        self._identity = {**self._labels, "instance": instance}
        self.health = Health(settings.liveness_timeout_s)
        self._reader = MetricsReader(stage, self.health)

    def served(self) -> AbstractContextManager[int]:
        """Serve until the end of the block, if a port is set; ConfigurationError if the port is not available."""
        app = application(MetricsCollector(self._reader.read, self._labels), self._pages())
        return serve_http(app, address=self._settings.address, port=self._settings.port)

    def follow(self, runtime: StageRuntime) -> None:
        """Report the state of this stage from now on."""
        self.health.runtime = self._reader.runtime = runtime

    @contextmanager
    def on(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Monitor the event loop of the stage until the end of the block. Must be called on that loop."""
        with self._reader.on(loop), self.health.heartbeat():
            yield

    def _pages(self) -> dict[str, Callable[[], Page]]:
        def probe_page(name: str, reasons: list[str], **more: list[str]) -> Page:
            return (503 if reasons else 200), {name: not reasons, "reasons": reasons, **more, **self._identity}

        return {
            "/livez": lambda: probe_page("alive", self.health.liveness_failures()),
            "/readyz": lambda: probe_page("ready", self.health.readiness_failures(), waiting=self.health.waiting()),
            "/version": lambda: (200, {"version": __version__, "python": platform.python_version(), **self._identity}),
        }
