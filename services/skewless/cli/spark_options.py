"""Click options of all commands that run a Spark job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from skewless.cli.options import no_progress

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--master",
        help="Spark master: local[N], spark://..., k8s://..., yarn.  [default: local[*], or that of spark-submit]",
    ),
    click.option(
        "--packages",
        "packages",
        multiple=True,
        metavar="MAVEN",
        help="Maven coordinates that Spark fetches, separated by commas; repeatable. If given, they must include the "
        "Kafka connector.",
    ),
    click.option(
        "--ship",
        is_flag=True,
        help="Send the Python packages to the executors of a cluster, which then need only a Python of the same "
        "version. Packed once, and again after a change.",
    ),
    click.option(
        "--driver-memory",
        metavar="SIZE",
        help="Memory of the driver, such as 4g; with a local master also of all tasks.",
    ),
    click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A further Spark option; repeatable."),
    click.option("--ui", is_flag=True, help="Serve Spark's web UI while the job runs."),
    no_progress,
)


def spark_options(command: Command) -> Command:
    """Add the options to a command, which receives them as `**spark`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
