"""Fetch and make at once what the broker and Spark need on this machine: `python -m skewless.local.prepare`."""

from __future__ import annotations

import sys

import click

from skewless.errors import SkewlessError
from skewless.local import jars, template


def prepare() -> None:
    """Make sure of all jars, and of what broker starts share."""
    jars.ensure("kafka")
    jars.ensure("spark")
    template.template()


def main() -> None:
    """Prepare; one line says what is missing."""
    try:
        prepare()
    except SkewlessError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
