"""`skewless config`: whether a configuration is right, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import click

from skewless.commands.options import load_settings, pipeline_file


@click.group()
def config() -> None:
    """Check or show the configuration of a pipeline."""


@config.command()
@pipeline_file
def check(file: Path | None) -> None:
    """Say whether the configuration is valid; name every mistake at once if not.

    \b
    Example:
      skewless config check -f pipeline.yaml
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    from skewless.transport.options_check import check_files, check_options

    settings = load_settings(file)
    check_files(settings.kafka)
    check_options(settings.kafka, settings.transport)
    click.echo(f"{file or 'environment'}: pipeline {settings.name} is valid")


@config.command()
@pipeline_file
def dump(file: Path | None) -> None:
    """Print the effective configuration as YAML: defaults, file and environment together, secrets hidden.

    \b
    Example:
      SKEWLESS__ROUTER__WORKERS=4 skewless config dump -f pipeline.yaml
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    from skewless import config as configuration

    click.echo(configuration.dump(load_settings(file)), nl=False)
