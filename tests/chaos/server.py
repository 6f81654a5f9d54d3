"""A broker for faults: one listener for the test, and one that processes reach through a proxy."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path

from helpers.kafka import free_ports
from skewless.lab.local.broker import Broker

FULL_BYTES = 4096
"""Maximum size of a file in bytes while the disk is `full`."""


class Server:
    """An embedded broker with the address `bootstrap`. Processes that use `proxy` receive only the proxy's address."""

    def __init__(self, folder: Path, proxy: int) -> None:
        self._folder = folder
        self._proxy = proxy
        self._direct, self.behind, self._controller = free_ports(3)
        self._internal = 0
        self.broker = Broker(folder)

    @property
    def bootstrap(self) -> str:
        """Address that bypasses the proxy."""
        return f"127.0.0.1:{self._direct}"

    def start(self) -> None:
        """Start the broker, at first or after a stop."""
        (self._internal,) = free_ports(1)
        self.broker = Broker(self._folder, port=self._direct, properties=self._properties())
        self.broker.start()

    def signal(self, number: signal.Signals) -> None:
        """Send the broker a signal."""
        if self.broker.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.broker.pid, number)

    def fill_disk(self) -> None:
        """Make every write that enlarges a file fail, as on a full disk. A start of the broker ends this."""
        if self.broker.pid is not None:
            _, hard = resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.broker.pid, resource.RLIMIT_FSIZE, (FULL_BYTES, hard))

    def _properties(self) -> dict[str, str]:
        direct, internal = f"CLIENT://127.0.0.1:{self._direct}", f"INTERNAL://127.0.0.1:{self._internal}"
        controller = f"127.0.0.1:{self._controller}"
        return {
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("CLIENT", "PROXIED", "INTERNAL", "CONTROLLER")
            ),
            "listeners": f"{direct},PROXIED://127.0.0.1:{self.behind},{internal},CONTROLLER://{controller}",
            "advertised.listeners": f"{direct},PROXIED://127.0.0.1:{self._proxy},{internal}",
            "controller.quorum.voters": f"1@{controller}",
        }
