"""Implements `skewless sink`: shows and checks the tables of results in a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from skewless.cli.options import load_settings, pipeline_file
from skewless.errors import CheckFailedError, StoreError
from skewless.sql.dialects import DATABASES, find_database

if TYPE_CHECKING:
    from skewless.config.pipeline_settings import PipelineSettings
    from skewless.sql.table import ResultTable


@click.group()
def sink() -> None:
    """Show or check the tables of results in a database. The section `sink` of the pipeline's file names it."""


@sink.command()
@pipeline_file
@click.option("--dialect", type=click.Choice(list(DATABASES)), help="Dialect of SQL.  [default: that of sink.url]")
def schema(file: Path | None, dialect: str | None) -> None:
    """Print the SQL that creates the tables. Does not connect to the database.

    \b
    Example:
      skewless sink schema -f pipeline.yaml > tables.sql
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    from skewless.sql.statements import Statements

    table = settings.sink_table()
    kind = DATABASES[dialect] if dialect else find_database(settings.table_settings.url)[0]
    if kind.dialect.preamble:
        click.echo(kind.dialect.preamble)
    statements = Statements(kind.dialect, table).schema()
    for rank_table in settings.rank_tables():
        statements += Statements(kind.dialect, rank_table).tables()
    for statement in statements:
        click.echo(f"{statement};")


@sink.command()
@pipeline_file
def check(file: Path | None) -> None:
    """Compare the tables and the rights of the user with what is needed. Exit with 1 and every difference otherwise.

    \b
    Example:
      skewless sink check -f pipeline.yaml
    """  # noqa: D301 - \b is click's marker for unwrapped text
    settings = load_settings(file)
    problems: list[str] = []
    is_missing = False
    for table in (settings.sink_table(), *settings.rank_tables()):
        found, some_missing = _check(settings, table)
        problems += found
        is_missing |= some_missing
    if is_missing:
        problems.append(
            "the sink creates missing tables when it starts"
            if settings.table_settings.create
            else "sink.create is off: create missing tables with the output of `skewless sink schema`"
        )
    if problems:
        lines = dict.fromkeys(problems)  # both tables need that of the offsets
        raise CheckFailedError(f"{settings.table_settings.address} is not as needed:\n  " + "\n  ".join(lines))


def _check(settings: PipelineSettings, table: ResultTable) -> tuple[list[str], bool]:
    """Return a line for each problem of a table, and whether it or a table that it needs is missing.

    Prints what is to be known of a table without problems.
    """
    from skewless import topology
    from skewless.operations.result_table import connected
    from skewless.sql import schema as tables
    from skewless.sql.dialects import database_of

    database = database_of(settings.table_settings, table)
    try:
        database.require_existence()  # a connection would create the file of SQLite
    except StoreError as error:
        return [str(error)], False
    with connected(database), database.converted_errors("checking the tables"):
        missing_rights = [*tables.missing_rights(database)]
        problems = [*tables.differences(database), *missing_rights]
        if not missing_rights:  # the offsets can be read
            stage = topology.table_stage(settings, ranked=table.ranked).name
            problems += tables.foreign_offsets(database, settings.full_name, stage)
        if not problems:
            click.echo(f"table {table.name} in {settings.table_settings.address} is as needed")
            for note in tables.notes(database, settings.full_name, stage):
                click.echo(f"note: {note}")
        return problems, any(tables.missing(database))
