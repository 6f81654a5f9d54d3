"""Writes a new `jars.lock`: `python -m skewless.lab.local.lock_jars`. Change versions in the coordinates below.

PySpark's Ivy resolves the dependencies. $SKEWLESS_IVY_SETTINGS can name the Ivy settings file of a mirror.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

import click

from skewless.errors import ConfigurationError, UnreachableError, how_to_add
from skewless.lab.local import jars, java
from skewless.lab.local.jar_download import Jar, sha256
from skewless.lab.local.maven_repository import IVY_SETTINGS, base_address

KAFKA = ("org.apache.kafka:kafka_2.13:4.2.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
SPARK = (  # the connector and its dependencies that are not among Spark's own jars
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)

SETTINGS = """<ivysettings>
  <settings defaultResolver="repository"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="repository" root={root} m2compatible="true" usepoms="{poms}" checksums=""
      timeoutConstraint="bounded"/>
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


def resolve(coordinates: Sequence[str], *, transitive: bool) -> list[Jar]:
    """Download the jars of the coordinates and return their lock entries."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = run_ivy(coordinates, folder, transitive=transitive)
        return [
            Jar(":".join(path.parent.relative_to(folder / "out").parts), sha256(path), path.stat().st_size)
            for path in paths
        ]


def run_ivy(coordinates: Sequence[str], folder: Path, *, transitive: bool) -> list[Path]:
    """Download the jars of the coordinates to `folder`/out/GROUP/ARTIFACT/VERSION/; `transitive`: with dependencies."""
    module, output = folder / "ivy.xml", folder / "out"
    rows = [DEPENDENCY.format(*coordinate.split(":"), str(transitive).lower()) for coordinate in coordinates]
    module.write_text(MODULE.format(dependencies="\n".join(rows)))
    command = [str(java.find().path), "-jar", str(_ivy()), "-settings", str(_settings(folder, poms=transitive))]
    command += ["-cache", str(folder / "cache"), "-ivy", str(module), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{output}/[organisation]/[artifact]/[revision]/[artifact]-[revision].[ext]"]
    completed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)  # noqa: S603
    if completed.returncode:
        raise UnreachableError(f"Ivy cannot resolve the jars: {_reason(completed.stdout)}")
    return sorted(output.rglob("*.jar"))


def _settings(folder: Path, *, poms: bool) -> Path:
    """Return the Ivy settings file of the user, or one for the repository."""
    if configured := os.environ.get(IVY_SETTINGS):
        return Path(configured)
    path = folder / "settings.xml"
    path.write_text(SETTINGS.format(root=quoteattr(f"{base_address()}/"), poms=str(poms).lower()))
    return path


def _reason(log: str) -> str:
    """Return the line of Ivy's output that names the failure."""
    lines = [line.strip(" \t:") for line in log.splitlines()]
    failures = [line for text in ("Exception", "not found") for line in lines if text in line]
    return failures[0] if failures else "Ivy gave no reason"


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"PySpark, whose Ivy resolves the jars, is not installed: {how_to_add('spark')}")
    return next(Path(spec.origin).parent.glob("jars/ivy-*.jar"))


def render(bundles: dict[str, list[Jar]]) -> str:
    """Return the text of the lock file. It has one jar per line, so that the diff of a new version is readable."""
    sections = []
    for name, bundle in bundles.items():
        lines = ",\n".join(f"    {json.dumps(jar._asdict())}" for jar in bundle)
        sections.append(f'  "{name}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    """Resolve both bundles and replace the lock file."""
    bundles = {"kafka": resolve(KAFKA, transitive=True), "spark": resolve(SPARK, transitive=False)}
    jars.LOCK.write_text(render(bundles))
    click.echo(f"{jars.LOCK}: {', '.join(f'{len(bundle)} jars of {name}' for name, bundle in bundles.items())}")


if __name__ == "__main__":
    main()
