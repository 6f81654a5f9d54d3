"""Cache of a formatted data folder and of a class archive, which make the embedded broker start faster.

Formatting the data folder and loading classes take most of a start. Formatted folders differ only in their ids, so a
formatted folder is copied. The JVM maps the classes from an archive of a first run (AppCDS). Both are created once per
Java version and set of jars.
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
from skewless.lab.local import child_process, java, kafka_process
from skewless.lab.local.folders import cache_folder, file_lock

CHECKPOINT = "bootstrap.checkpoint"
ARCHIVE = "classes.jsa"
ARCHIVE_TIMEOUT_S = 60.0
"""Maximum time to write the class archive when the JVM exits."""


def format_data(folder: Path) -> None:
    """Format `folder`/data with new ids. Does nothing if it is formatted, because a server may restart on its data."""
    data = folder / "data"
    if (data / "meta.properties").exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(template() / CHECKPOINT, data / CHECKPOINT)
    (data / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={_new_id()}\ndirectory.id={_new_id()}\n")


def _new_id() -> str:
    """Return a random identifier as Kafka makes them. None begins with `-`, which would be an option for its tools."""
    while True:
        identifier = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not identifier.startswith("-"):
            return identifier


def server_command(properties: Path) -> list[str]:
    """Return the command line of a server that uses the class archive."""
    return kafka_process.command("kafka.Kafka", str(properties), jvm=f"-XX:SharedArchiveFile={template() / ARCHIVE}")


@functools.cache
def template() -> Path:
    """Return the cached folder with the formatted checkpoint and the class archive. Creates it if it is missing."""
    inputs = [java.find().version, *kafka_process.command(jvm="")]
    inputs.remove(kafka_process.LOGGING)  # a file of this package, which each environment has in another folder
    folder = cache_folder() / f"broker-{hashlib.sha256(' '.join(inputs).encode()).hexdigest()[:12]}"
    with file_lock(cache_folder() / "broker.lock"):
        if not folder.exists():
            click.echo("preparing the embedded broker (once) ...", err=True)
            with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".broker-") as temporary:
                created = Path(temporary) / "created"
                created.mkdir()
                _create(Path(temporary), created)
                created.rename(folder)
    return folder


def _create(folder: Path, created: Path) -> None:
    """Format `folder`, run a server on it once to archive its classes, and put the results into `created`."""
    ports = kafka_process.free_ports()
    properties = kafka_process.write_properties(folder, ports, {})
    format_command = ["kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", str(properties)]
    _require_success(
        subprocess.run(  # noqa: S603 - no shell
            kafka_process.command(*format_command, jvm="-Xshare:auto"), capture_output=True, check=False
        )
    )
    shutil.copyfile(folder / "data" / CHECKPOINT, created / CHECKPOINT)

    archive = f"-XX:ArchiveClassesAtExit={created / ARCHIVE}"
    log = cache_folder() / "broker.log"
    log.unlink(missing_ok=True)
    child = child_process.start(kafka_process.command("kafka.Kafka", str(properties), jvm=archive), log=log)
    try:
        kafka_process.wait_until_started(child, log, {"bootstrap.servers": f"127.0.0.1:{ports.client}"})
    finally:
        child_process.stop(child, grace_s=ARCHIVE_TIMEOUT_S)


def _require_success(completed: subprocess.CompletedProcess[bytes]) -> None:
    if completed.returncode:
        output = (completed.stdout + completed.stderr).decode(errors="replace").strip()
        raise BrokerError(f"Kafka's StorageTool failed with exit code {completed.returncode}: {output[-1500:]}")
