"""Provides the jars of Kafka and of Spark's Kafka connector. Ivy downloads them once.

`jars.lock` lists every jar with its SHA-256. The jars are stored in the cache folder, and each process verifies them
before use. `KAFKA_HOME` names an installed Kafka to use instead.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import click

from skewless.errors import ConfigurationError
from skewless.lab.local import ivy
from skewless.lab.local.folders import cache_folder, file_lock

LOCK = Path(__file__).with_name("jars.lock")
Bundle = Literal["kafka", "spark"]
HOME = "KAFKA_HOME"


class Jar(NamedTuple):
    """One locked jar: coordinates `group:artifact:version`, SHA-256 in hexadecimal, size in bytes."""

    jar: str
    sha256: str
    bytes: int

    @property
    def file(self) -> str:
        """File name of the jar in the cache."""
        _, artifact, version = self.jar.split(":")
        return f"{artifact}-{version}.jar"


def locked(bundle: Bundle) -> list[Jar]:
    """Return the jars of a bundle from the lock file."""
    return [Jar(**entry) for entry in json.loads(LOCK.read_text())[bundle]]


def kafka() -> tuple[Path, ...]:
    """Return the jars of KAFKA_HOME, or the locked ones of Kafka."""
    return _installed() or ensure("kafka")


def kafka_version() -> str:
    """Return the version of the Kafka whose jars `kafka` returns. Downloads nothing."""
    names = [path.name for path in _installed()] or [jar.file for jar in locked("kafka")]
    return next(match[1] for name in names if (match := re.fullmatch(r"kafka-clients-(.+)\.jar", name)))


def _installed() -> tuple[Path, ...]:
    """Return the jars of KAFKA_HOME; none if it is not set."""
    home = os.environ.get(HOME)
    jars = tuple(sorted(Path(home).glob("libs/*.jar"))) if home else ()
    if home and not any(jar.name.startswith("kafka-clients-") for jar in jars):
        raise ConfigurationError(f"{HOME}: {home} is not the folder of a Kafka: libs/kafka-clients-*.jar is missing")
    return jars


@functools.cache
def ensure(bundle: Bundle) -> tuple[Path, ...]:
    """Return the verified jars of a bundle. Downloads missing ones. Safe with several processes at once."""
    return ensure_all(locked(bundle), bundle)


def ensure_all(required: Sequence[Jar], name: str) -> tuple[Path, ...]:
    """Return the verified files of locked jars. Downloads missing ones; `name` is for the message."""
    folder = cache_folder() / "jars"
    if _missing(required, folder):
        with file_lock(folder / ".lock"):
            if missing := _missing(required, folder):
                ivy.find()
                size = sum(jar.bytes for jar in missing) / 1e6
                click.echo(f"downloading {len(missing)} jars of {name}, {size:.0f} MB, into {folder} ...", err=True)
                _download(missing, folder)
    return tuple(folder / jar.file for jar in required)


def _missing(required: Sequence[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in required if not (folder / jar.file).is_file() or sha256(folder / jar.file) != jar.sha256]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(jars: Sequence[Jar], folder: Path) -> None:
    """Download jars into `folder`. Only one process at a time may do so."""
    cache = folder / ".ivy"
    downloaded = {path.name: path for path in ivy.download([jar.jar for jar in jars], cache, transitive=False)}
    wrong = [jar for jar in jars if jar.file not in downloaded or sha256(downloaded[jar.file]) != jar.sha256]
    for jar in jars:
        if jar not in wrong:
            downloaded[jar.file].replace(folder / jar.file)
    shutil.rmtree(cache)
    if wrong:
        raise ConfigurationError(
            f"the jars that were downloaded for {', '.join(jar.jar for jar in wrong)} do not have the locked SHA-256, "
            "so they were deleted: check the repository, and whether a proxy returned a page of its own"
        )
