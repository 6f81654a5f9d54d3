"""Write `jars.lock` anew: `python -m skewless.local.lock_jars`. Change the coordinates here to change versions."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from skewless.local import jars

KAFKA = ("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
SPARK = (  # what Spark's own jars lack of the connector's closure
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)


def resolve(coordinates: tuple[str, ...], *, transitive: bool) -> list[jars.Jar]:
    """Fetch the jars of the coordinates and describe each."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found = jars.run_ivy(coordinates, folder, transitive=transitive)
        return [
            jars.Jar(":".join(path.parent.relative_to(folder / "out").parts), jars.sha256(path), path.stat().st_size)
            for path in found
        ]


def render(bundles: dict[str, list[jars.Jar]]) -> str:
    """Return the lock's text: one jar per line, so that a change of versions reads well."""
    parts = []
    for name, found in bundles.items():
        lines = ",\n".join(f"    {json.dumps(jar._asdict())}" for jar in found)
        parts.append(f'  "{name}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Resolve both bundles and replace the lock."""
    bundles = {"kafka": resolve(KAFKA, transitive=True), "spark": resolve(SPARK, transitive=False)}
    jars.LOCK.write_text(render(bundles))
    click.echo(f"{jars.LOCK}: {', '.join(f'{len(found)} jars of {name}' for name, found in bundles.items())}")


if __name__ == "__main__":
    main()
