"""Implements `skewless topics`: creates, verifies and describes the topics of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from skewless.cli.options import load_settings, pipeline_file
from skewless.cli.plain_text import counted
from skewless.errors import ConfigurationError

FORMATS = ("table", "kafka-acls", "strimzi")


@click.group()
def topics() -> None:
    """Create or verify the topics of a pipeline. The source topic must exist."""


@topics.command()
@pipeline_file
def apply(file: Path | None) -> None:
    """Create missing topics and verify existing ones. Existing topics are never changed.

    \b
    Example:
      skewless topics apply -f pipeline.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.config import topic_plan

    report = topic_plan.apply(settings)
    for state, names in (("created", report.created), ("exists ", report.existing)):
        for name in names:
            topic = report.topics[name]
            counts = f"{counted(topic.partitions, 'partition')}, {counted(topic.replication_factor, 'replica')}"
            click.echo(f"{state} {name}  {counts}")
    _print_warnings(report.warnings)


@topics.command()
@pipeline_file
def check(file: Path | None) -> None:
    """Verify that all topics exist as configured. List every difference and exit with 1 otherwise.

    \b
    Example:
      skewless topics check -f pipeline.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.config import topic_plan

    report = topic_plan.check(settings)
    click.echo(f"all {len(report.existing)} topics of pipeline {settings.name} are as configured")
    _print_warnings(report.warnings)


@topics.command()
@pipeline_file
@click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="[ROLE=]NAME",
    help="User of a role (a stage, topics, status, readers or dead-letters), or of all roles. May be given "
    "repeatedly.  [default: the prefix and the role]",
)
@click.option("--principal-prefix", metavar="PREFIX", help="Prefix of the role.  [default: the pipeline's name and -]")
@click.option("--format", "acl_format", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True)
def acls(file: Path | None, principals: tuple[str, ...], principal_prefix: str | None, acl_format: str) -> None:
    """Print the minimum ACLs of each stage. Does not connect to a broker.

    Role `topics` runs `topics apply`, role `status` runs `status` and `topics check`, role `readers` reads the results,
    role `dead-letters` replays invalid records. The output is a shell script for kafka-acls, or KafkaUsers of a Kafka
    cluster named my-cluster for strimzi.

    \b
    Examples:
      skewless topics acls -f pipeline.yaml
      skewless topics acls -f pipeline.yaml --format kafka-acls --principal topics=admin
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.config import acl_formats, acls

    prefix = f"{settings.name}-" if principal_prefix is None else principal_prefix
    principal_by_role = _principal_by_role(principals, {role: prefix + role for role in acls.ROLES})
    bindings = acls.acls_by_principal(settings, principal_by_role)
    click.echo(acl_formats.FORMATS[acl_format](bindings, settings), nl=False)


@topics.command()
@pipeline_file
@click.option(
    "--source-partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Number of partitions of the source topic, if known.",
)
def asyncapi(file: Path | None, source_partitions: int | None) -> None:
    """Print an AsyncAPI document of the pipeline's topics.

    It describes the records, keys, headers and options. Does not connect to a broker.

    \b
    Example:
      skewless topics asyncapi -f pipeline.yaml --source-partitions 8 > asyncapi.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.asyncapi.document import as_yaml, document

    click.echo(as_yaml(document(settings, source_partitions)), nl=False)


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _principal_by_role(options: tuple[str, ...], default: dict[str, str]) -> dict[str, str]:
    """Return the principal of each role from the values of --principal: [ROLE=]NAME."""
    # The name of a certificate contains `=` too, so the part before it is a role only if it is a known one.
    principal_by_role = dict(default)
    for option in sorted(options, key=lambda text: text.partition("=")[0] in default):
        role, _, name = option.partition("=")
        assigned = {role: name} if role in default else dict.fromkeys(default, option)
        if not all(assigned.values()):
            raise ConfigurationError(f"--principal {option}: has no name, write {role}=NAME")
        principal_by_role |= assigned
    return principal_by_role
