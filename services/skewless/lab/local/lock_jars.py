"""Writes a new `jars.lock`: `python -m skewless.lab.local.lock_jars`. Change versions in the coordinates below."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from skewless.lab.local import ivy, jars
from skewless.lab.local.jars import Jar, sha256

KAFKA = ("org.apache.kafka:kafka_2.13:4.2.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
SPARK = (  # the connector and its dependencies that are not among Spark's own jars
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


def resolve(coordinates: Sequence[str], *, transitive: bool) -> list[Jar]:
    """Download the jars of the coordinates and return their lock entries."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = ivy.download(coordinates, folder, transitive=transitive)
        return [
            Jar(":".join(path.parent.relative_to(folder / "out").parts), sha256(path), path.stat().st_size)
            for path in paths
        ]


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
