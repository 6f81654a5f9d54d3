"""A real schema registry for tests: Apicurio Registry, whose archive Ivy downloads once, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from helpers.versions import VERSIONS
from helpers.waiting import WAIT_S
from skewless.lab.local import child_process, ivy, java
from skewless.lab.local.folders import cache_folder, file_lock
from skewless.lab.local.jars import sha256
from skewless.lab.local.ports import find_free_ports

COORDINATE = f"io.apicurio:apicurio-registry-app:{VERSIONS['apicurio']}:zip:all"
SHA256 = "8fc13160eaaafeec930a9a93b7e82da1ee8caef3eae29c9ce4b403d80a1523ea"
START_S = 300.0
API = "/apis/ccompat/v7"
RUNNER = f"apicurio-registry-app-{VERSIONS['apicurio']}-runner.jar"


def server_folder() -> Path:
    """Return the folder of the unpacked server. Downloads it at the first call. Safe with several processes at once."""
    folder = cache_folder() / f"apicurio-registry-{VERSIONS['apicurio']}"
    if not (folder / RUNNER).exists():
        with file_lock(folder.with_suffix(".lock")):
            if not (folder / RUNNER).exists():
                _install(folder)
    return folder


def _install(folder: Path) -> None:
    parts = folder.with_suffix(".parts")
    (archive,) = ivy.download([COORDINATE], parts, transitive=False)
    assert sha256(archive) == SHA256, f"{archive.name} does not have the locked SHA-256"
    unpacked = parts / "unpacked"
    with zipfile.ZipFile(archive) as content:
        content.extractall(unpacked)
    shutil.rmtree(folder, ignore_errors=True)
    unpacked.rename(folder)
    shutil.rmtree(parts)


class RegistryServer:
    """The server, with all schemas in memory."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "registry.log"
        (self.port,) = find_free_ports(1)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the API."""
        return f"http://127.0.0.1:{self.port}{API}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.enabled": "false",
            "quarkus.datasource.url": f"jdbc:h2:mem:registry{self.port}",
        }
        command = [str(java.find().path), "-Xmx384m", *java.QUICK_START]
        command += [f"-D{name}={value}" for name, value in options.items()]
        self._child = child_process.start([*command, "-jar", str(server_folder() / RUNNER)], log=self._log)
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.get("/schemas/types")
            except OSError:
                if self._child.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(self._log.read_text(errors="replace")[-3000:]) from None
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        """End the process at once."""
        if self._child is not None:
            child_process.kill(self._child)
            self._child = None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, for example to let it hang."""
        assert self._child is not None
        self._child.send_signal(number)

    def get(self, path: str) -> Any:
        """Return the answer to a request."""
        with urlopen(self.url + path, timeout=WAIT_S) as answer:  # noqa: S310 - the address of this server
            return json.load(answer)

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Register a schema, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        content = {"schema": text, "schemaType": kind, "references": list(references)}
        request = Request(  # noqa: S310 - as above
            f"{self.url}/subjects/{subject}/versions",
            json.dumps(content).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        try:
            with urlopen(request, timeout=WAIT_S) as answer:  # noqa: S310 - as above
                schema_id: int = json.load(answer)["id"]
                return schema_id
        except HTTPError as error:
            with error:
                raise AssertionError(f"the registry refuses {text}: {error.read().decode()}") from error


@contextlib.contextmanager
def running_registry(folder: Path) -> Iterator[RegistryServer]:
    """Run a server until the block ends."""
    server = RegistryServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
