"""Implements `skewless config`: checks a pipeline's configuration and prints the effective one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from skewless.cli.options import load_settings, pipeline_file


@click.group()
def config() -> None:
    """Check or show the configuration of a pipeline."""


@config.command()
@pipeline_file
def check(file: Path | None) -> None:
    """Check the configuration, and print all invalid settings at once.

    Settings are checked together once each of them is valid.

    \b
    Example:
      skewless config check -f pipeline.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    from skewless.config.topic_plan import workers_above_default
    from skewless.kafka.other_cluster import errors_of_other_cluster
    from skewless.kafka.validate_options import check_files, validate_client_options
    from skewless.parsing.python_function import require_function

    settings = load_settings(file)
    check_files(settings.kafka)
    validate_client_options(settings.kafka, settings.transport)
    if (mirror := settings.mirror) is not None:
        with errors_of_other_cluster():
            check_files(mirror.kafka)
            validate_client_options(mirror.kafka, settings.transport.model_copy(update={"guarantee": "exactly_once"}))
    require_function(settings.splitter.python)
    click.echo(f"{file or 'environment'}: pipeline {settings.name} is valid")
    if settings.sink is not None and (warning := settings.sink.login_warning):
        click.echo(f"warning: {warning}", err=True)
    workers = settings.router.workers
    if workers > settings.worker_input.partitions:  # only possible without a maximum of its own
        click.echo(
            f"warning: {workers_above_default(workers)}; set worker_input.max_workers, unless topic "
            f"{settings.topic('worker-input')} has as many partitions",
            err=True,
        )


@config.command()
@pipeline_file
def dump(file: Path | None) -> None:
    """Print the effective configuration as YAML. Secrets are masked.

    It merges the defaults, the file and the environment.

    \b
    Example:
      SKEWLESS__ROUTER__WORKERS=4 skewless config dump -f pipeline.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    from skewless.config import loader as configuration

    click.echo(configuration.dump(load_settings(file)), nl=False)


@config.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files.

    Editors complete and check the files with it.

    \b
    Example:
      skewless config schema > pipeline.schema.json
    """  # noqa: D301 - \b is click's marker for unwrapped text
    from skewless.config.pipeline_settings import PipelineSettings

    click.echo(json.dumps(PipelineSettings.model_json_schema(), indent=2))
