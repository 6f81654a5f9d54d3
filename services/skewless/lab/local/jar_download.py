"""Downloads locked jars from a Maven repository: several at once, verified by SHA-256, with a progress bar."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import NamedTuple

from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local.maven_repository import MavenRepository
from skewless.lab.progress import report_progress

CONNECTIONS = 6
PAUSES_S = (0.5, 2.0)
"""Pauses before the second and the third attempt to download a jar."""
REFRESH_S = 0.2


class Jar(NamedTuple):
    """One locked jar: Maven coordinates `group:artifact:version`, SHA-256 in hexadecimal, size in bytes."""

    jar: str
    sha256: str
    bytes: int

    @property
    def file(self) -> str:
        """File name of the jar in the cache."""
        _, artifact, version = self.jar.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def path(self) -> str:
        """Path of the jar in a Maven repository."""
        group, artifact, version = self.jar.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{self.file}"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(jars: Sequence[Jar], folder: Path, repository: MavenRepository) -> None:
    """Download jars into `folder`. Only one process at a time may do so.

    A jar gets its name when it is complete and verified. After an interruption or an error, the verified jars remain,
    so the next call only needs the others. The first error ends all downloads.
    """
    downloads = [_Download(jar, folder, repository) for jar in jars]
    stop = Event()
    total = sum(jar.bytes for jar in jars) // 1000
    with (
        report_progress("downloading", total, time.monotonic(), unit="kB") as progress,
        ThreadPoolExecutor(CONNECTIONS) as pool,
    ):
        running: set[Future[None]] = {pool.submit(each.run, stop) for each in downloads}
        try:
            while running:
                done, running = wait(running, REFRESH_S, FIRST_EXCEPTION)
                progress.update(time.monotonic(), sum(each.received for each in downloads) // 1000)
                for task in done:
                    task.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Download:
    """The download of one jar, in a thread."""

    def __init__(self, jar: Jar, folder: Path, repository: MavenRepository) -> None:
        self.received = 0
        """Number of bytes so far."""
        self._jar = jar
        self._folder = folder
        self._repository = repository

    def run(self, stop: Event) -> None:
        """Download and verify the jar, with further attempts after a lost connection, until `stop` is set."""
        part = self._folder / f".{self._jar.file}.part"
        try:
            for pause in PAUSES_S:
                try:
                    return self._attempt(part, stop)
                except UnreachableError:
                    if stop.wait(pause):
                        return None
            return self._attempt(part, stop)
        finally:
            part.unlink(missing_ok=True)

    def _attempt(self, part: Path, stop: Event) -> None:
        digest = hashlib.sha256()
        self.received = 0
        with part.open("wb") as file:
            for chunk in self._repository.read(self._jar.path):
                if stop.is_set():
                    return
                file.write(chunk)
                digest.update(chunk)
                self.received += len(chunk)
        if digest.hexdigest() != self._jar.sha256:
            raise ConfigurationError(
                f"{self._repository.address}/{self._jar.path}: the file ({self.received} bytes) does not have the "
                f"SHA-256 that is locked for {self._jar.jar} ({self._jar.bytes} bytes, {self._jar.sha256}), so it was "
                "deleted: check the repository, and whether a proxy returned a page of its own"
            )
        part.replace(self._folder / self._jar.file)
