"""Provides the jars of Kafka and of Spark's Kafka connector, which are downloaded once from a Maven repository.

`jars.lock` lists every jar with its SHA-256. The jars are stored in the cache folder, and each process verifies them
before use. `maven_repository` describes the settings of a mirror and of a proxy.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from skewless.lab.local.folders import cache_folder, file_lock
from skewless.lab.local.jar_download import Jar, download, sha256
from skewless.lab.local.maven_repository import MavenRepository, base_address

LOCK = Path(__file__).with_name("jars.lock")
Bundle = Literal["kafka", "spark"]
CLIENTS = "org.apache.kafka:kafka-clients:"
"""Coordinates of the jar that has the version of Kafka."""


def locked(bundle: Bundle) -> list[Jar]:
    """Return the jars of a bundle from the lock file."""
    return [Jar(**entry) for entry in json.loads(LOCK.read_text())[bundle]]


def kafka_version() -> str:
    """Return the version of the Kafka that the bundle contains."""
    return next(jar.jar.removeprefix(CLIENTS) for jar in locked("kafka") if jar.jar.startswith(CLIENTS))


@functools.cache
def ensure(bundle: Bundle) -> tuple[Path, ...]:
    """Return the verified jars of a bundle. Downloads missing ones. Safe with several processes at once."""
    folder, required = cache_folder() / "jars", locked(bundle)
    if _missing(required, folder):
        with file_lock(folder / ".lock"):
            if missing := _missing(required, folder):
                _download(bundle, missing, folder)
    return tuple(folder / jar.file for jar in required)


def _missing(required: Sequence[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in required if not (folder / jar.file).is_file() or sha256(folder / jar.file) != jar.sha256]


def _download(bundle: Bundle, jars: Sequence[Jar], folder: Path) -> None:
    repository = MavenRepository(base_address())
    size = sum(jar.bytes for jar in jars) / 1e6
    click.echo(
        f"downloading {len(jars)} jars of {bundle}, {size:.0f} MB, from {repository.address} into {folder} ...",
        err=True,
    )
    download(jars, folder, repository)
