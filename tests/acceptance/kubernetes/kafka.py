"""The embedded broker, where pods reach it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from skewless.local import process, server, template
from skewless.transport.probe import wait_until_reachable

PORT = 9092
READY_S = 60.0


@contextlib.contextmanager
def broker(folder: Path, host: str) -> Iterator[str]:
    """Run Kafka with its clients' listener at this address; yields `host:port`."""
    template.format_data(folder)
    ports = server.free_ports(PORT)
    clients, own = f"CLIENT://{host}:{PORT}", f"INTERNAL://127.0.0.1:{ports.internal}"
    listeners = {
        "listeners": f"{clients},{own},CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": f"{clients},{own}",
    }
    properties = server.write_properties(folder, ports, listeners)
    child = process.start(template.server_command(properties), log=folder / "broker.log")
    try:
        wait_until_reachable({"bootstrap.servers": f"{host}:{PORT}"}, READY_S, give_up=lambda: child.poll() is not None)
        yield f"{host}:{PORT}"
    finally:
        process.stop(child)
