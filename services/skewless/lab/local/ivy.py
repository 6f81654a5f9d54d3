"""Downloads jars with Apache Ivy, which PySpark includes, from its default repository.

| variable | meaning |
| --- | --- |
| `SKEWLESS_MAVEN_REPOSITORY` | base address of a mirror |
| `SKEWLESS_IVY_SETTINGS` | Ivy settings file that is used instead, which may have credentials |
| `JAVA_TOOL_OPTIONS` | options of Java, such as those of a proxy |
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from skewless.errors import ConfigurationError, UnreachableError, how_to_add
from skewless.lab.local import child_process, java

ADDRESS = "SKEWLESS_MAVEN_REPOSITORY"
IVY_SETTINGS = "SKEWLESS_IVY_SETTINGS"
NEXT_STEP = (
    "check the network and run this again; behind a proxy set Java's options in JAVA_TOOL_OPTIONS, with a mirror set "
    f"{ADDRESS} or {IVY_SETTINGS}"
)
SETTINGS = """<ivysettings>
  <settings defaultResolver="repository"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="repository"{root} m2compatible="true" usepoms="{poms}" checksums="" timeoutConstraint="bounded"/>
  </resolvers>
</ivysettings>
"""
MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="skewless" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
DEPENDENCY = (
    '    <dependency org="{}" name="{}" rev="{}" transitive="{}" force="true" conf="default->default">{}</dependency>'
)
ARTIFACT = '<artifact name="{}" type="{}" ext="{}" m:classifier="{}"/>'


def download(coordinates: Sequence[str], cache: Path, *, transitive: bool) -> list[Path]:
    """Download jars to `cache`/out/GROUP/ARTIFACT/VERSION/ and return their paths; `transitive`: with dependencies.

    A coordinate is `group:artifact:version`, or of another file than the jar `group:artifact:version:type:classifier`.
    After an error, Ivy's cache in `cache` has the complete jars, so the next call downloads only the rest.
    """
    output = cache / "out"
    with tempfile.TemporaryDirectory() as temporary:
        module, settings, log = (Path(temporary, name) for name in ("ivy.xml", "settings.xml", "log"))
        rows = [_dependency(coordinate, transitive=transitive) for coordinate in coordinates]
        module.write_text(MODULE.format(dependencies="\n".join(rows)))
        settings.write_text(_settings(poms=transitive))
        command = [str(java.find().path), *java.QUICK_START, "-jar", str(find())]
        command += ["-cache", str(cache), "-ivy", str(module)]
        types = {
            "jar",
            "bundle",
            *(coordinate.split(":")[3] for coordinate in coordinates if coordinate.count(":") > 2),
        }
        command += ["-settings", os.environ.get(IVY_SETTINGS) or str(settings), "-types", *sorted(types)]
        command += ["-retrieve", f"{output}/[organisation]/[artifact]/[revision]/[artifact]-[revision].[ext]"]
        child = child_process.start(command, log=log)
        try:
            code = child.wait()
        finally:
            child_process.kill(child)
        if code:
            raise UnreachableError(f"Ivy cannot download the jars ({_reason(log.read_text())}): {NEXT_STEP}")
    return sorted(path for path in output.rglob("*") if path.is_file())


def _dependency(coordinate: str, *, transitive: bool) -> str:
    """Return the element of a coordinate in the list of dependencies."""
    group, name, version, *other = coordinate.split(":")
    artifact = ARTIFACT.format(name, other[0], *other) if other else ""
    return DEPENDENCY.format(group, name, version, str(transitive).lower(), artifact)


def find() -> Path:
    """Return the jar of Ivy. Raises ConfigurationError without PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            f"the jars are missing, and PySpark, whose Ivy downloads them, is not installed: {how_to_add('spark')}, or "
            "set KAFKA_HOME to the folder of an installed Kafka"
        )
    return next(Path(spec.origin).parent.glob("jars/ivy-*.jar"))


def _settings(*, poms: bool) -> str:
    """Return Ivy's settings for its default repository, or for the mirror of the environment."""
    address = os.environ.get(ADDRESS)
    if address and not re.match(r"https?://[^/@]+(/|$)", address):
        raise ConfigurationError(
            f"{ADDRESS} must be an address of http or https without a user: an Ivy settings file ({IVY_SETTINGS}) can "
            "have credentials"
        )
    root = f" root={quoteattr(address)}" if address else ""
    return SETTINGS.format(root=root, poms=str(poms).lower())


def _reason(log: str) -> str:
    """Return the line of Ivy's output that names the failure."""
    lines = [line.strip(" \t:") for line in log.splitlines()]
    failures = [line for text in ("Exception", "SERVER ERROR", "FAILED", "not found") for line in lines if text in line]
    return failures[0] if failures else "Ivy gave no reason"
