"""Embedded broker: Apache Kafka in KRaft mode, one node, on free loopback ports, with its data in its own folder."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from skewless.lab.local import child_process, formatted_storage_cache, kafka_process

STOP_TIMEOUT_S = 10.0
MAX_ATTEMPTS = 3
"""Attempts to start on free ports, because another process can bind a port after it was chosen."""


class Broker:
    """A Kafka broker as a child process, which ends with this process.

    Without `folder`, the data are temporary and removed at the end. After `kill`, `start` restarts the same broker with
    the same port and data. `properties` are added to those of the server. The listener for clients is named CLIENT, so
    that `listener.security.protocol.map` can secure it alone. `client` are the librdkafka options for that listener.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute() if folder else None
        self.port = port
        self._properties = dict(properties or {})
        self._client = dict(client or {})
        self._temporary = contextlib.ExitStack()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Address for clients, `127.0.0.1:PORT`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the JVM, or None while it does not run."""
        return self._child.pid if self._child and self._child.poll() is None else None

    @property
    def log(self) -> Path:
        """File with the warnings and errors of the server."""
        return self._folder() / "broker.log"

    def start(self) -> Self:
        """Start the server and wait until it answers. Raises UnreachableError, with the end of its log, on failure."""
        try:
            with kafka_process.hold_previous_port(self._folder()):
                return self._start()
        except BaseException:
            self.stop()
            raise

    __enter__ = start

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _start(self) -> Self:
        for attempts_left in reversed(range(MAX_ATTEMPTS)):
            ports = kafka_process.free_ports(self.port)
            try:
                self._launch(ports)
            except kafka_process.PortInUseError:
                if self.port or not attempts_left:
                    raise
            else:
                self.port = ports.client
                return self
        raise AssertionError  # the last attempt returns or raises

    def stop(self) -> None:
        """Shut the server down, and remove its folder if it is temporary."""
        try:
            if self._child:
                child_process.stop(self._child, grace_s=STOP_TIMEOUT_S)
        finally:
            self._temporary.close()

    def kill(self) -> None:
        """Kill the server like a crash. Its data remain, and `start` restarts it."""
        if self._child:
            child_process.kill(self._child)

    def wait(self) -> int:
        """Wait until the server exits and return its exit code."""
        return self._child.wait() if self._child else 0

    def _launch(self, ports: kafka_process.Ports) -> None:
        folder = self._folder()
        properties = kafka_process.write_properties(folder, ports, self._properties)
        formatted_storage_cache.format_data(folder)
        self.log.unlink(missing_ok=True)
        child = self._child = child_process.start(formatted_storage_cache.server_command(properties), log=self.log)
        options = {**self._client, "bootstrap.servers": f"127.0.0.1:{ports.client}"}
        kafka_process.wait_until_started(child, self.log, options)

    def _folder(self) -> Path:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="skewless-broker-"))
            self._temporary.enter_context(child_process.temporary_folder(self.folder))
            self._temporary.callback(setattr, self, "folder", None)
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder
