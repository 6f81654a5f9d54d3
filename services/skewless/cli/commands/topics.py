"""Implements `skewless topics`: creates, verifies and describes the topics of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skewless.cli.options import FiniteFloat, is_given, load_settings, pipeline_file
from skewless.cli.plain_text import counted
from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.operations.topic_sizes import Load, TopicSize

FORMATS = ("table", "kafka-acls", "strimzi")
DAY_S = 86_400


@click.group()
def topics() -> None:
    """Create or verify the topics of a pipeline. The source topic must exist."""


@topics.command()
@pipeline_file
@click.option("--dry-run", is_flag=True, help="Print what would be created, and create nothing.")
@click.option(
    "--rate",
    type=FiniteFloat(0, min_open=True),
    metavar="RECORDS_PER_S",
    help="With --dry-run: estimate the bytes of the topics at this rate of the source, and of each side of a join.",
)
@click.option("--keys", type=click.IntRange(1), default=10_000, show_default=True, help="Number of different keys.")
@click.option(
    "--key-bytes", type=click.IntRange(1, 65_536), default=16, show_default=True, help="Mean size of a key or an id."
)
@click.option(
    "--record-bytes",
    type=click.IntRange(2),
    default=200,
    show_default=True,
    help="Mean size of a record that is joined, or to which fields of tables are added.",
)
def apply(  # noqa: PLR0913 - click passes an argument per option
    file: Path | None, *, dry_run: bool, rate: float | None, keys: int, key_bytes: int, record_bytes: int
) -> None:
    """Create missing topics and verify existing ones. Existing topics are never changed.

    \b
    Examples:
      skewless topics apply -f pipeline.yaml
      skewless topics apply -f pipeline.yaml --dry-run --rate 10000 --keys 50000
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    if rate is None and (others := [name for name in ("keys", "key_bytes", "record_bytes") if is_given(name)]):
        raise ConfigurationError(*(f"--{name.replace('_', '-')}: only with --rate" for name in others))
    from skewless.config import topic_plan

    if dry_run:
        from skewless.operations.topic_sizes import Load

        _print_plan(settings, None if rate is None else Load(rate, record_bytes, keys, key_bytes))
        return
    if rate is not None:
        raise ConfigurationError("--rate: estimates sizes and creates nothing, add --dry-run")
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
    """Print an AsyncAPI document of the pipeline's public topics.

    It describes the records, keys, headers and options, also those of worker-input if it has a record per tuple. Does
    not connect to a broker.

    \b
    Example:
      skewless topics asyncapi -f pipeline.yaml --source-partitions 8 > asyncapi.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.asyncapi.document import as_yaml, document

    click.echo(as_yaml(document(settings, source_partitions)), nl=False)


def _print_plan(settings: PipelineSettings, load: Load | None) -> None:
    """Print what `apply` would do and, for a load, the size of each topic."""
    from skewless.config import topic_plan

    specs, existing = topic_plan.planned(settings)
    for spec in specs:
        found = existing.get(spec.name)
        factor = spec.replication_factor if found is None else found.replication_factor
        replicas = "replicas by default of the brokers" if factor is None else counted(factor, "replica")
        state = "would create" if found is None else "exists      "
        click.echo(f"{state} {spec.name}  {counted(spec.partitions, 'partition')}, {replicas}")
    partitions = sum(spec.partitions for spec in specs)
    click.echo(f"in all {len(specs)} topics, {counted(partitions, 'partition')} without replicas")
    if load is not None:
        from skewless.operations.topic_sizes import topic_sizes

        for line in _size_table(load, topic_sizes(settings, specs, load)):
            click.echo(line)


def _size_table(load: Load, sizes: Sequence[TopicSize]) -> Iterator[str]:
    """Yield the lines of a table of sizes."""
    yield ""
    yield f"At {load.records_per_s:,g} records/s with {load.keys:,} keys of {load.key_bytes:,} bytes, one replica of"
    yield "each topic has about these bytes before compression:"
    yield ""
    yield f"{'topic':20} {'kB/s':>12} {'GB/day':>12} {'GB kept at most':>16}"
    for size in sizes:
        if size.bytes_per_s is None:
            yield f"{size.name:20} {'few records':>12}"
        else:
            kept = "grows" if size.kept_bytes is None else f"{size.kept_bytes / 1e9:,.3f}"
            yield f"{size.name:20} {_rates(size.bytes_per_s)} {kept:>16}"
    yield f"{'all':20} {_rates(sum(size.bytes_per_s or 0 for size in sizes))}"


def _rates(bytes_per_s: float) -> str:
    """Return kB per second and GB per day, as two columns."""
    return f"{bytes_per_s / 1000:12,.1f} {bytes_per_s * DAY_S / 1e9:12,.3f}"


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
