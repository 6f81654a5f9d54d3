"""Fills the cache with everything that the broker and Spark need: `python -m skewless.lab.local.prefetch`."""

from __future__ import annotations

import sys

import click

from skewless.errors import SkewlessError
from skewless.lab.local import formatted_storage_cache, jars


def prefetch() -> None:
    """Download all jars and create the template of the broker."""
    jars.ensure("spark")
    formatted_storage_cache.template()


def main() -> None:
    """Fill the cache. Prints an error as one line and exits with its code."""
    try:
        prefetch()
    except SkewlessError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
