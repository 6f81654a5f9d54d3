"""Implements `skewless version`: shows the versions of Skewless and of what it uses."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

import click

from skewless import __version__
from skewless.errors import SkewlessError

PACKAGES = ("confluent-kafka", "faust-streaming", "numba", "numpy", "pyarrow", "pyspark", "psycopg", "pymysql")
"""Python packages whose version matters in a report of a problem; some are optional."""


@click.command()
@click.option("--all", "shows_all", is_flag=True, help="Also show Python, librdkafka, Kafka, Java and packages.")
def version(*, shows_all: bool) -> None:
    """Show the version of Skewless, and with --all the versions of what it uses.

    \b
    Example:
      skewless version --all
    """  # noqa: D301 - \b is click's marker for unwrapped text
    rows = [("skewless", __version__), *(_others() if shows_all else ())]
    width = max(len(name) for name, _ in rows)
    for name, number in rows:
        click.echo(f"{name:{width}}  {number}")


def _others() -> Iterator[tuple[str, str]]:
    from skewless.kafka.clients import librdkafka_version
    from skewless.lab.local import jars, java

    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "librdkafka", librdkafka_version()
    for package in PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            yield package, "not installed"
    yield "kafka", f"{jars.kafka_version()} as local broker"
    try:
        yield "java", java.find().version
    except SkewlessError:
        yield "java", "not found"
