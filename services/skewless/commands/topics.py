"""`skewless topics`: the topics of a pipeline, created and verified."""

from __future__ import annotations

from pathlib import Path

import click

from skewless.commands.options import load_settings, pipeline_file
from skewless.errors import ConfigurationError

FORMATS = ("table", "kafka-acls", "strimzi")


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


@topics.command()
@pipeline_file
@click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="[ROLE=]NAME",
    help="User of a role (a stage, topics or readers), or of all roles. May be given repeatedly.  [default: the "
    "prefix and the role]",
)
@click.option("--principal-prefix", metavar="PREFIX", help="Put before the role.  [default: the pipeline's name and -]")
@click.option("--format", "form", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True)
def acls(file: Path | None, principals: tuple[str, ...], principal_prefix: str | None, form: str) -> None:
    """Print what each stage must be allowed on the brokers, and no more. Asks no broker.

    Role `topics` runs `topics apply`, role `readers` reads the results. What is printed for kafka-acls is a shell
    script, what is printed for strimzi are KafkaUsers of a Kafka that is named my-cluster.

    \b
    Examples:
      skewless topics acls -f pipeline.yaml
      skewless topics acls -f pipeline.yaml --format kafka-acls --principal topics=admin
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    settings = load_settings(file)
    from skewless import acl_formats, acls

    prefix = f"{settings.name}-" if principal_prefix is None else principal_prefix
    named = _principals(principals, {role: prefix + role for role in acls.ROLES})
    click.echo(acl_formats.FORMATS[form](acls.by_principal(settings, named), settings), nl=False)


@topics.command()
@pipeline_file
@click.option(
    "--source-partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Partitions of the source topic, if they are known.",
)
def asyncapi(file: Path | None, source_partitions: int | None) -> None:
    """Print an AsyncAPI document of the pipeline's topics: records, keys, headers, options. Asks no broker.

    \b
    Example:
      skewless topics asyncapi -f pipeline.yaml --source-partitions 8 > asyncapi.yaml
    """  # noqa: D301 - \b is click's mark for text that is not wrapped
    settings = load_settings(file)
    from skewless.asyncapi.document import as_yaml, document

    click.echo(as_yaml(document(settings, source_partitions)), nl=False)


def _principals(given: tuple[str, ...], default: dict[str, str]) -> dict[str, str]:
    """Name each role's principal; a certificate's name has `=` in it too, so only a role counts before it."""
    named = dict(default)
    for each in sorted(given, key=lambda text: text.partition("=")[0] in default):
        role, _, name = each.partition("=")
        wanted = {role: name} if role in default else dict.fromkeys(default, each)
        if not all(wanted.values()):
            raise ConfigurationError(f"--principal {each}: has no name, write {role}=NAME")
        named |= wanted
    return named
