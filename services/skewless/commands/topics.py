"""`skewless topics`: the topics of a pipeline, created and verified."""

from __future__ import annotations

from pathlib import Path

import click

from skewless.commands.options import load_settings, pipeline_file


@click.group()
def topics() -> None:
    """Create or verify the topics of a pipeline. The source topic is yours and must exist."""


@topics.command()
@pipeline_file
def apply(file: Path | None) -> None:
    """Create the topics that are missing, verify the others. Existing topics are never changed.

    \b
    Example:
      skewless topics apply -f pipeline.yaml
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    settings = load_settings(file)
    from skewless.transport import topics as kafka_topics

    report = kafka_topics.apply(settings)
    for name in report.created:
        click.echo(f"created {name}")
    for name in report.existing:
        click.echo(f"exists  {name}")


@topics.command()
@pipeline_file
def check(file: Path | None) -> None:
    """Verify that all topics exist as the configuration wants them; list every difference (exit 1) if not.

    \b
    Example:
      skewless topics check -f pipeline.yaml
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    settings = load_settings(file)
    from skewless.transport import topics as kafka_topics

    report = kafka_topics.check(settings)
    click.echo(f"all {len(report.existing)} topics of pipeline {settings.name} are as configured")
