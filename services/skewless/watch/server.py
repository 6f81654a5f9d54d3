"""How a process serves what it shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from skewless.errors import ConfigurationError
from skewless.watch.collector import ListCollector


@contextlib.contextmanager
def served(collector: ListCollector, *, address: str, port: int) -> Iterator[None]:
    """Serve /metrics while the block runs; nothing is served when `port` is 0.

    Raises ConfigurationError when the port is taken.
    """
    if port == 0:
        yield
        return
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise ConfigurationError(f"metrics.port: {address}:{port} cannot be listened on: {error.strerror}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
