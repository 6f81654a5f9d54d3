"""Implements `skewless reset`: removes what a pipeline has written, so that it can start again or is gone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skewless.cli.options import load_settings, pipeline_file
from skewless.cli.plain_text import counted
from skewless.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.operations.reset import Leftovers
    from skewless.sql.database import Database


@click.command()
@pipeline_file
@click.option(
    "--to-start", is_flag=True, help="Create the topics again, so that the next start reads from the beginning."
)
@click.option("--delete", is_flag=True, help="Leave nothing of the pipeline.")
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def reset(file: Path | None, *, to_start: bool, delete: bool, dry_run: bool, yes: bool) -> None:
    """Remove the results and the state of a pipeline: its topics, consumer groups, and rows in a database.

    Topics that the pipeline reads stay as they are. Prints what it would remove, and asks. Refuses while processes of
    the pipeline run. After --to-start, the next start reads its input from `source.start` again.

    \b
    Examples:
      skewless reset -f pipeline.yaml --to-start --dry-run
      skewless reset -f pipeline.yaml --delete --yes
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    if to_start == delete:
        raise ConfigurationError("choose either --to-start, to count again, or --delete, to leave nothing")
    from skewless.config import topic_plan
    from skewless.operations.reset import leftovers, remove

    if to_start:
        settings = topic_plan.for_new_topics(settings)  # before anything is removed that it could not create again
    with _database(settings) as database:
        left = leftovers(settings, database, lambda line: click.echo(line, err=True))
        if left.is_nothing:
            click.echo(f"pipeline {settings.name} has no topics, groups or rows: nothing to remove")
        else:
            _print_plan(settings, left, to_start=to_start)
            if to_start and database is not None:
                _warn_of_tables(settings)
            if not (dry_run or yes):
                _ask(settings)
            if not dry_run:
                remove(settings, left, database, click.echo)
    if to_start and not dry_run:
        for topic in topic_plan.apply(settings).created:
            click.echo(f"created topic {topic}")


def _print_plan(settings: PipelineSettings, left: Leftovers, *, to_start: bool) -> None:
    click.echo(f"pipeline {settings.name} at {settings.kafka.bootstrap_servers}: removes")
    for group in left.groups:
        click.echo(f"  group {group}")
    for table in left.tables:
        click.echo(f"  rows of table {table} in {settings.sink.address if settings.sink else ''}")
    for topic, partitions in left.topics.items():
        click.echo(f"  topic {topic}, {counted(partitions, 'partition')}")
    if to_start:
        click.echo("and creates the topics again, empty")
    users = [f"topic {name}" for name in sorted({*settings.user_topics.values(), *settings.table_topics.values()})]
    if settings.source_pattern:
        users.append(f"topics that match {settings.aggregated}")
    click.echo(f"stays as it is: {', '.join(users)}")
    if to_start and left.has_replays:
        click.echo(
            "warning: `skewless dead-letters replay` has written copies of invalid records. If the originals are valid "
            "with the present settings, the next start counts both",
            err=True,
        )
    if (mirror := settings.mirror) is not None:
        copy, servers = f"{mirror.prefix}{settings.topic(mirror.topic)}", mirror.kafka.bootstrap_servers
        click.echo(f"delete by hand: topic {copy} at {servers}, because the stage mirror would not continue it")


def _warn_of_tables(settings: PipelineSettings) -> None:
    """Warn of tables that stay, and do not fit the present settings."""
    from skewless.operations.result_table import connected
    from skewless.sql import schema
    from skewless.sql.dialects import database_of

    misfits: list[str] = []
    for table in (settings.sink_table(), *settings.rank_tables()):
        database = database_of(settings.table_settings, table)
        with connected(database), database.converted_errors("checking the tables"):
            misfits += schema.misfits(database)
    for misfit in dict.fromkeys(misfits):  # both tables need that of the offsets
        click.echo(f"warning: the next start refuses {misfit}. Correct or drop the table before", err=True)


def _ask(settings: PipelineSettings) -> None:
    """Ask whether to continue. Raises ConfigurationError without a terminal, and click.Abort if the answer is no."""
    if not sys.stdin.isatty():
        raise ConfigurationError("stdin is not a terminal, so the question cannot be answered: add --yes, or --dry-run")
    click.confirm(f"Remove all this of pipeline {settings.name}? It cannot be recovered", abort=True)


@contextlib.contextmanager
def _database(settings: PipelineSettings) -> Iterator[Database | None]:
    """Connect to the database of section `sink`; None if there is none."""
    if settings.sink is None:
        yield None
        return
    from skewless.operations.result_table import connected
    from skewless.sql.dialects import database_of

    database = database_of(settings.sink, settings.sink_table())
    try:
        database.require_existence()
    except StoreError:
        click.echo(f"{database.address} does not exist: no rows to remove", err=True)
        yield None
        return
    with connected(database):
        yield database
