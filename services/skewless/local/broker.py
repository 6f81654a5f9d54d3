"""The embedded broker: Apache Kafka, KRaft, one node, on free loopback ports, with data in a folder of its own."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from skewless.errors import UnreachableError
from skewless.local import process, server, template

READY_S = 60.0
STOP_S = 10.0
ATTEMPTS = 3


class Broker:
    """A Kafka broker as a child process, which dies with us however we end.

    Without `folder` its data are temporary and removed at the end. Started again after `kill` it is the same broker:
    same port, same data. `properties` are added to the server's (the clients' listener is named CLIENT, so that
    `listener.security.protocol.map` can secure it alone); `client` are the librdkafka options that reach it then.
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
        """Process id of the JVM while it runs."""
        return self._child.pid if self._child and self._child.poll() is None else None

    @property
    def log(self) -> Path:
        """The file with the server's warnings and errors."""
        return self._folder() / "broker.log"

    def start(self) -> Self:
        """Start the server and return once it answers; raises UnreachableError with the log's end when it does not."""
        try:
            with server.former_self_silent(self._folder()):
                return self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> Self:
        for attempts_left in reversed(range(ATTEMPTS)):
            chosen = server.free_ports(self.port)
            try:
                self._launch(chosen)
            except _PortTakenError:
                if self.port or not attempts_left:
                    raise
            else:
                self.port = chosen.client
                return self
        raise AssertionError  # the last attempt returns or raises

    def stop(self) -> None:
        """Stop the server in good order, and remove its folder if it was temporary."""
        try:
            if self._child:
                process.stop(self._child, STOP_S)
        finally:
            self._temporary.close()

    def kill(self) -> None:
        """End the server as a crash would; its data stay, and `start` brings it back."""
        if self._child:
            process.kill(self._child)

    def wait(self) -> int:
        """Wait for the server's end and return its exit code."""
        return self._child.wait() if self._child else 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, ports: server.Ports) -> None:
        folder = self._folder()
        template.format_data(folder)
        properties = server.write_properties(folder, ports, self._properties)
        self.log.unlink(missing_ok=True)
        child = self._child = process.start(template.server_command(properties), log=self.log)
        # Imported here, because `skewless.transport` is heavy and most commands need no broker of ours.
        from skewless.transport.probe import wait_until_reachable

        options = {**self._client, "bootstrap.servers": f"127.0.0.1:{ports.client}"}
        try:
            wait_until_reachable(options, READY_S, give_up=lambda: child.poll() is not None)
        except UnreachableError as error:
            log = self.log.read_text(errors="replace").strip()
            kind = _PortTakenError if "Address already in use" in log else UnreachableError
            state = f"ended with exit code {child.returncode}" if child.poll() is not None else str(error)
            raise kind(
                f"the embedded broker did not start: {state}; its log {self.log} ends with\n{log[-1500:]}"
            ) from None

    def _folder(self) -> Path:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="skewless-broker-"))
            self._temporary.enter_context(process.removed_afterwards(self.folder))
            self._temporary.callback(setattr, self, "folder", None)
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder


class _PortTakenError(UnreachableError):
    """Somebody else has one of the ports."""
