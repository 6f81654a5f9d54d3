"""Implements `skewless version`: shows the versions of Skewless and of what it uses."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

import click

from skewless.errors import SkewlessError
from skewless.version import VERSION

MAIN_PACKAGES = ("confluent-kafka", "faust-streaming", "pyspark")
"""Python packages on which stages and Spark jobs are built."""
OTHER_PACKAGES = ("numba", "numpy", "pyarrow", "psycopg", "pymysql", "fastavro", "protobuf")
"""Other packages whose version matters in a report of a problem; some are optional."""


@click.command()
@click.option("--all", "shows_all", is_flag=True, help="Also show the local Kafka, Java and more packages.")
def version(*, shows_all: bool) -> None:
    """Show the versions of Skewless and of what it uses.

    \b
    Example:
      skewless version --all
    """  # noqa: D301 - \b is click's marker for unwrapped text
    rows = [("skewless", VERSION), *_main(), *(_others() if shows_all else ())]
    width = max(len(name) for name, _ in rows)
    for name, number in rows:
        click.echo(f"{name:{width}}  {number}")


def _main() -> Iterator[tuple[str, str]]:
    from skewless.kafka.clients import librdkafka_version

    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "librdkafka", librdkafka_version()
    yield from map(_package, MAIN_PACKAGES)


def _package(name: str) -> tuple[str, str]:
    try:
        return name, metadata.version(name)
    except metadata.PackageNotFoundError:
        return name, "not installed"


def _others() -> Iterator[tuple[str, str]]:
    from skewless.lab.local import jars, java

    yield from map(_package, OTHER_PACKAGES)
    yield "kafka", f"{jars.kafka_version()} as local broker"
    try:
        yield "java", java.find().version
    except SkewlessError:
        yield "java", "not found"
