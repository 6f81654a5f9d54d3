"""Monitoring of a process: metrics, health checks and version of its stages, available before Kafka is connected."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from skewless import topology
from skewless.monitoring.collector import MetricsCollector
from skewless.monitoring.health import Health
from skewless.monitoring.metrics_reader import READ_TIMEOUT_S, MetricsReader
from skewless.monitoring.server import Page, application, serve_http
from skewless.monitoring.settings import MetricsSettings
from skewless.version import VERSION


class StageMonitor:
    """Monitors one stage of a process."""

    def __init__(self, settings: MetricsSettings, *, pipeline: str, stage: str, instance: int) -> None:
        self.labels = {"pipeline": pipeline, "stage": stage}
        self.identity = {**self.labels, "instance": instance}
        self.health = Health(settings.liveness_timeout_s)
        self.reader = MetricsReader(stage, self.health)

    @contextmanager
    def on(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Monitor the event loop of the stage until the end of the block. Must be called on that loop."""
        with self.reader.on(loop), self.health.heartbeat():
            yield


def served(settings: MetricsSettings, monitors: Sequence[StageMonitor]) -> AbstractContextManager[int]:
    """Serve the metrics, health checks and version of a process with these stages until the end of the block.

    Does not serve without a port. Raises ConfigurationError if the port is not available.
    """
    # All stages are read one after the other, on the same event loop: they share the time.
    timeout_s = READ_TIMEOUT_S / len(monitors)
    collector = MetricsCollector(*((partial(each.reader.read, timeout_s), each.labels) for each in monitors))
    return serve_http(application(collector, _pages(monitors)), address=settings.address, port=settings.port)


def _pages(monitors: Sequence[StageMonitor]) -> dict[str, Callable[[], Page]]:
    """Return the pages by path. With several stages, each text begins with its stage, and `stages` has them apart."""
    several = len(monitors) > 1
    identity = {**monitors[0].identity, **({"stage": topology.ALL_STAGES} if several else {})}

    def probe_page(name: str, **texts_of: Callable[[Health], list[str]]) -> Page:
        by_stage = {
            each.labels["stage"]: {field: read(each.health) for field, read in texts_of.items()} for each in monitors
        }
        texts = {
            field: [f"{stage}: {text}" if several else text for stage, own in by_stage.items() for text in own[field]]
            for field in texts_of
        }
        stages = {"stages": by_stage} if several else {}
        passed = not texts["reasons"]
        return (200 if passed else 503), {name: passed, **texts, **stages, **identity}

    return {
        "/livez": lambda: probe_page("alive", reasons=Health.liveness_failures),
        "/readyz": lambda: probe_page("ready", reasons=Health.readiness_failures, waiting=Health.waiting),
        "/version": lambda: (200, {"version": VERSION, "python": platform.python_version(), **identity}),
    }
