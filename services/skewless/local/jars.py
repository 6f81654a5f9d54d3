"""The jars of Kafka and of Spark's Kafka connector, fetched once by the Ivy inside PySpark.

`jars.lock` names every jar with its SHA-256. They lie in the cache folder under their file names, and each process
verifies them before it uses them. $SKEWLESS_IVY_SETTINGS may name the Ivy settings of a mirror; the checksums hold.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import click

from skewless.errors import ConfigurationError, UnreachableError
from skewless.local import java
from skewless.local.folders import cache_folder, exclusive

LOCK = Path(__file__).with_name("jars.lock")
Bundle = Literal["kafka", "spark"]

SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="{poms}" checksums="" timeoutConstraint="bounded"/>
  </resolvers>
</ivysettings>
"""
MODULE = """<ivy-module version="2.0">
  <info organisation="skewless" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
DEPENDENCY = '    <dependency org="{0}" name="{1}" rev="{2}" transitive="{3}" force="true" conf="default->default"/>'
UNREACHABLE = (
    "cannot fetch {count} jars of {bundle} from Maven Central ({reason}): check the network and run this again; "
    "behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... , with a mirror set SKEWLESS_IVY_SETTINGS to its Ivy "
    "settings file"
)


class Jar(NamedTuple):
    """One locked jar: Maven coordinates `group:artifact:version`, SHA-256 in hexadecimal, size in bytes."""

    jar: str
    sha256: str
    bytes: int

    @property
    def file(self) -> str:
        """Name of the jar's file in the cache."""
        _, artifact, version = self.jar.split(":")
        return f"{artifact}-{version}.jar"


def locked(bundle: Bundle) -> list[Jar]:
    """Read the jars of a bundle from the lock."""
    return [Jar(**entry) for entry in json.loads(LOCK.read_text())[bundle]]


@functools.cache
def ensure(bundle: Bundle) -> tuple[Path, ...]:
    """Return the verified jars of a bundle, fetching what the cache lacks; safe with several processes at once."""
    folder, wanted = cache_folder() / "jars", locked(bundle)
    if _missing(wanted, folder):
        with exclusive(folder / ".lock"):
            if missing := _missing(wanted, folder):
                _fetch(bundle, missing, folder)
    return tuple(folder / jar.file for jar in wanted)


def _missing(wanted: Sequence[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in wanted if not (folder / jar.file).is_file() or sha256(folder / jar.file) != jar.sha256]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(bundle: Bundle, jars: Sequence[Jar], folder: Path) -> None:
    size = sum(jar.bytes for jar in jars) / 1e6
    click.echo(f"fetching {len(jars)} jars of {bundle}, {size:.0f} MB, into {folder} ...", err=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        fetched = Path(temporary)
        try:
            run_ivy([jar.jar for jar in jars], fetched, transitive=False)
        except UnreachableError as error:
            raise UnreachableError(UNREACHABLE.format(count=len(jars), bundle=bundle, reason=error)) from None
        for jar in jars:
            path = fetched / "out" / Path(*jar.jar.split(":")) / jar.file
            if not path.is_file() or sha256(path) != jar.sha256:
                raise ConfigurationError(
                    f"{jar.jar}: what was fetched is not the jar of {LOCK.name} (SHA-256 {jar.sha256})"
                )
            path.replace(folder / jar.file)


def run_ivy(coordinates: Sequence[str], folder: Path, *, transitive: bool) -> list[Path]:
    """Let Ivy put the jars of the coordinates (and of what these need) into `folder`/out/GROUP/ARTIFACT/VERSION/."""
    settings, module, out = folder / "settings.xml", folder / "ivy.xml", folder / "out"
    rows = [DEPENDENCY.format(*each.split(":"), str(transitive).lower()) for each in coordinates]
    settings.write_text(SETTINGS.format(poms=str(transitive).lower()))
    module.write_text(MODULE.format(dependencies="\n".join(rows)))
    command = [
        str(java.find().path),
        "-jar",
        str(_ivy()),
        "-settings",
        os.environ.get("SKEWLESS_IVY_SETTINGS", str(settings)),
    ]
    command += ["-cache", str(folder / "cache"), "-ivy", str(module), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{out}/[organisation]/[artifact]/[revision]/[artifact]-[revision].[ext]"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # noqa: S603
    if answer.returncode:
        raise UnreachableError(_reason(answer.stdout))
    return sorted(out.rglob("*.jar"))


def _reason(log: str) -> str:
    lines = [line.strip(" \t:") for line in log.splitlines()]
    telling = [line for mark in ("Exception", "not found") for line in lines if mark in line]
    return telling[0] if telling else "Ivy gave no reason"


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "PySpark is not installed, and its Ivy fetches Kafka's jars: pip install 'skewless[spark]'"
        )
    return next(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
