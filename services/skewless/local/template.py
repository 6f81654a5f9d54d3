"""What every start of the embedded broker shares, made once per Java and jars and kept in the cache.

Formatting the data folder and loading classes take most of a start. A formatted folder differs from another only in its
ids, so it is copied; the JVM maps the classes of a first run from an archive (AppCDS).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import click

from skewless.errors import BrokerError
from skewless.local import java, process, server
from skewless.local.folders import cache_folder, exclusive

CHECKPOINT = "bootstrap.checkpoint"
ARCHIVE = "classes.jsa"
READY_S = 60.0
ARCHIVING_S = 60.0


def format_data(folder: Path) -> None:
    """Format `folder`/data with ids of its own, unless it is formatted: a server may be started again on its data."""
    data = folder / "data"
    if (data / "meta.properties").exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(template() / CHECKPOINT, data / CHECKPOINT)
    (data / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={_new_id()}\ndirectory.id={_new_id()}\n")


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def server_command(properties: Path) -> list[str]:
    """Return the command line of a server that maps the archived classes."""
    return server.command("kafka.Kafka", str(properties), jvm=f"-XX:SharedArchiveFile={template() / ARCHIVE}")


@functools.cache
def template() -> Path:
    """Return the cached folder with the formatted checkpoint and the class archive, making it if need be."""
    recipe = [java.find().version, *server.command(jvm="")]
    folder = cache_folder() / f"broker-{hashlib.sha256(' '.join(recipe).encode()).hexdigest()[:12]}"
    with exclusive(cache_folder() / "broker.lock"):
        if not folder.exists():
            click.echo("preparing the embedded broker (once) ...", err=True)
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".broker-") as temporary:
                made = Path(temporary) / "made"
                made.mkdir()
                _make(Path(temporary), made)
                made.rename(folder)
    return folder


def _make(folder: Path, made: Path) -> None:
    """Format a folder, and run a server on it once to learn its classes."""
    ports = server.free_ports()
    properties = server.write_properties(folder, ports, {})
    formatter = ["kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", str(properties)]
    _check(subprocess.run(server.command(*formatter, jvm="-Xshare:auto"), capture_output=True, check=False))  # noqa: S603
    shutil.copyfile(folder / "data" / CHECKPOINT, made / CHECKPOINT)

    from skewless.transport.probe import wait_until_reachable

    archive = f"-XX:ArchiveClassesAtExit={made / ARCHIVE}"
    child = process.start(server.command("kafka.Kafka", str(properties), jvm=archive), log=folder / "log")
    try:
        options = {"bootstrap.servers": f"127.0.0.1:{ports.client}"}
        wait_until_reachable(options, READY_S, give_up=lambda: child.poll() is not None)
    finally:
        process.stop(child, ARCHIVING_S)


def _check(answer: subprocess.CompletedProcess[bytes]) -> None:
    if answer.returncode:
        said = (answer.stdout + answer.stderr).decode(errors="replace").strip()
        raise BrokerError(f"Kafka's formatter ended with exit code {answer.returncode}: {said[-1500:]}")
