"""The embedded broker at an address that pods can reach."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from skewless.kafka.reachability import wait_until_reachable
from skewless.lab.local import child_process, formatted_storage_cache, kafka_process

PORT = 9092
READY_S = 60.0


@contextlib.contextmanager
def broker(folder: Path, host: str) -> Iterator[str]:
    """Run Kafka with its client listener at this address; yields `host:port`."""
    formatted_storage_cache.format_data(folder)
    ports = kafka_process.free_ports(PORT)
    clients, own = f"CLIENT://{host}:{PORT}", f"INTERNAL://127.0.0.1:{ports.internal}"
    listeners = {
        "listeners": f"{clients},{own},CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": f"{clients},{own}",
    }
    properties = kafka_process.write_properties(folder, ports, listeners)
    child = child_process.start(formatted_storage_cache.server_command(properties), log=folder / "broker.log")
    try:
        wait_until_reachable({"bootstrap.servers": f"{host}:{PORT}"}, READY_S, give_up=lambda: child.poll() is not None)
        yield f"{host}:{PORT}"
    finally:
        child_process.stop(child)
