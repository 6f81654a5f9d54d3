"""Creates the tables of a pipeline in a database, and compares them and the rights of the user with what is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from skewless.engine.start_checks import RESET
from skewless.errors import StoreError
from skewless.sql.database import Database
from skewless.sql.errors import GRANT, ErrorClass
from skewless.sql.statements import quote
from skewless.sql.table import OFFSET_COLUMNS, OFFSET_KEY, REFUSED_COLUMNS

OFFSETS = "skewless_offsets"
KEY = ("window_start", "key_id")
"""Columns of the primary key."""
RIGHTS = {
    "SELECT": "SELECT {column} FROM {table} WHERE 1 = 0",
    "INSERT": "INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE 1 = 0",
    "UPDATE": "UPDATE {table} SET {column} = {column} WHERE 1 = 0",
    "DELETE": "DELETE FROM {table} WHERE 1 = 0",
}
"""Rights that the sink needs: two on refused rows, three on offsets, four on results. Each has a statement that needs
it, and reads or changes no row."""


def apply(database: Database) -> None:
    """Create the tables that do not exist. Processes that start together wait for each other.

    Raises StoreError if a table exists that does not fit.
    """
    if not any(missing(database)):  # then no right to create tables is needed
        return
    database.begin_alone()
    _require_none(database, misfits(database))  # a view of a table that does not fit could not be created
    for statement in database.statements.schema():
        database.execute(statement)
    database.commit()


def require_fit(database: Database) -> None:
    """Raise StoreError if the tables are not as needed."""
    _require_none(database, differences(database))


def _require_none(database: Database, differences: Iterable[str]) -> None:
    if problems := list(differences):
        raise StoreError(
            f"the tables in {database.address} do not fit this pipeline: {'; '.join(problems)}. Correct "
            f"them, or name another table in {database.statements.table.setting}; if this pipeline has stored rows "
            f"before, also {RESET}"
        )


def require_own_offsets(database: Database, pipeline: str, stage: str) -> None:
    """Raise StoreError for what `foreign_offsets` finds."""
    for problem in foreign_offsets(database, pipeline, stage):
        raise StoreError(problem)


def foreign_offsets(database: Database, pipeline: str, stage: str) -> Iterator[str]:
    """Yield a line if a table is of another pipeline or stage, or the offsets are of another or of a lost table."""
    table = database.statements.table
    if not _columns(database, OFFSETS).keys() >= set(OFFSET_COLUMNS):  # `differences` yields what is missing
        return
    stored = {(writer, name) for writer, name in database.query(database.statements["tables_of_offsets"], (pipeline,))}
    names = {name for writer, name in stored if writer == stage}
    for name in (table.name, table.refused):
        for other in other_pipelines(database, name, pipeline):
            yield (
                f"table {name} in {database.address} is that of pipeline {other}: name another table in "
                f"{table.setting}. If that pipeline is gone, and the rows are those of {pipeline}, delete the rows of "
                f"{other} in table {OFFSETS}"
            )
    if others := sorted(writer for writer, name in stored if writer != stage and name == table.name):
        yield (
            f"table {table.name} in {database.address} has rows of stage {others[0]} of pipeline {pipeline}, so stage "
            f"{stage} cannot write to it: name another table in {table.setting}, or {RESET}"
        )
    if former := sorted(names - {table.name}):
        yield (
            f"table {OFFSETS} in {database.address}: the offsets of stage {stage} of pipeline {pipeline} belong to "
            f"table {', '.join(former)}, and {table.setting} is {table.name}, which would lack the results before "
            f"them. Set {table.setting} to {former[0]}, or {RESET}"
        )
    elif names and not exists(database, table.name):
        yield (
            f"table {table.name} in {database.address} does not exist, but {OFFSETS} has offsets of stage {stage} of "
            f"pipeline {pipeline}: a new table would lack the results before them. Restore the table, delete these "
            f"offsets to fill it again from the topic, or {RESET}"
        )


def notes(database: Database, pipeline: str, stage: str) -> Iterator[str]:
    """Yield a line for rows that the tables, which fit, may lack."""
    table = database.statements.table
    ((refused,),) = database.query(database.statements["refused_count"])
    if refused:
        yield f"table {table.refused} has {refused:,} refused rows"
    if table.adds:  # records with watermarks alone move its offsets
        return
    ((has_rows,),) = database.query(database.statements["results_exist"])
    if not has_rows and (stage, table.name) in database.query(database.statements["tables_of_offsets"], (pipeline,)):
        yield (
            f"table {table.name} is empty, but {OFFSETS} has its offsets: it may lack the results before them. "
            "If the table was emptied, delete these offsets to fill it again from the topic"
        )


def other_pipelines(database: Database, table: str, pipeline: str) -> list[str]:
    """Return the other pipelines whose offsets are those of a table."""
    if not exists(database, OFFSETS):
        return []
    return [name for (name,) in database.query(database.statements["other_pipelines"], (table, pipeline))]


def differences(database: Database) -> Iterator[str]:
    """Yield a line for each difference between the tables and what is needed."""
    yield from (f"{name}: {database.statements.dialect.missing}" for name in missing(database))
    yield from misfits(database)


def missing(database: Database) -> Iterator[str]:
    """Yield `table NAME` for each table that this user cannot see, and `view NAME` for the view."""
    table = database.statements.table
    yield from (f"table {name}" for name in (OFFSETS, table.refused, table.name) if not _columns(database, name))
    if table.adds and not _columns(database, table.view_name):
        yield f"view {table.view_name}"


def misfits(database: Database) -> Iterator[str]:
    """Yield a line for each difference between the tables and the view, as far as they exist, and what is needed."""
    table = database.statements.table
    if columns := _columns(database, OFFSETS):
        yield from _lacking(f"table {OFFSETS}", OFFSET_COLUMNS, columns)
        yield from _key_differences(database, OFFSETS, OFFSET_KEY)
    if columns := _columns(database, table.refused):
        yield from _lacking(f"table {table.refused}", REFUSED_COLUMNS, columns)
    if columns := _columns(database, table.name):
        yield from _result_differences(database, columns)
        yield from _key_differences(database, table.name, KEY)
    if table.adds and (shown := _columns(database, table.view_name)):
        yield from _lacking(f"view {table.view_name}", [column.name for column in table.view], shown)


def _lacking(name: str, needed: Iterable[str], existing: Iterable[str]) -> Iterator[str]:
    if lacking := [column for column in needed if column not in existing]:
        yield f"{name}: lacks {', '.join(lacking)}"


def _key_differences(database: Database, name: str, needed: Sequence[str]) -> Iterator[str]:
    key = {column for (column,) in database.query(database.statements["key_select"], (name,))}
    if key != set(needed):
        columns = f"({', '.join(sorted(key))})" if key else "none"
        yield f"table {name}: its primary key is {columns}, it must be ({', '.join(needed)})"


def _result_differences(database: Database, existing: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each difference between the columns of the table of results and those that are needed."""
    statements, table = database.statements, database.statements.table
    for column in table.columns:
        wanted = statements.dialect.type_of(column)
        if column.name not in existing:
            yield f"table {table.name}: column {column.name} is missing, it needs type {wanted}"
        elif existing[column.name] != wanted:
            yield (
                f"table {table.name}: column {column.name} has type {existing[column.name] or '(none)'}, it needs "
                f"type {wanted or '(none)'}"
            )
    needed = {name for (name,) in database.query(statements["required_select"], (table.name,))}
    for column in table.columns:
        if column.nullable and column.name in needed:
            yield f"table {table.name}: column {column.name} must allow NULL, because a key may have no such result"
    for name in sorted(needed - {column.name for column in table.columns}):
        yield (
            f"table {table.name}: column {name} is of no result, and needs a value in each row: drop it if it was "
            "that of a result. Otherwise allow NULL in it, or give it a default"
        )


def missing_rights(database: Database) -> Iterator[str]:
    """Yield a line for each right that the user lacks in the database, and on tables that exist."""
    if problem := _refusal(database, database.prepare_upserts):
        yield f"database {database.address.database}: right TEMPORARY is missing ({problem})"
    # The statements change no row, but the database checks the rights of their user.
    table = database.statements.table
    for name in (table.name, table.refused, OFFSETS):
        columns = list(_columns(database, name))
        if name == table.name:
            # The sink writes no other ones, and a column of the user may be generated.
            columns = [column.name for column in table.columns if column.name in columns]
        if not columns:
            continue
        needed = 2 if name == table.refused else 3 if name == OFFSETS else 4
        for right, template in list(RIGHTS.items())[:needed]:
            statement = template.format(
                table=quote(name), column=quote(columns[0]), columns=", ".join(map(quote, columns))
            )
            if problem := _refusal(database, partial(database.execute, statement)):
                yield f"table {name}: right {right} is missing ({problem})"


def _refusal(database: Database, operation: Callable[[], object]) -> str | None:
    database.begin()
    try:
        operation()
    except database.errors as error:
        failure = database.failure_of(error)
        if failure.error_class is not ErrorClass.PERMANENT:
            raise
        return failure.message.removesuffix(f"; {GRANT}")  # this line is of `sink check`
    finally:
        with contextlib.suppress(*database.errors):
            database.rollback()
    return None


def exists(database: Database, table: str) -> bool:
    """Return whether a table exists."""
    return bool(_columns(database, table))


def _columns(database: Database, table: str) -> dict[str, str]:
    """Return the types of the columns of a table by name; empty if it does not exist."""
    rows = database.query(database.statements["columns_select"], (table,))
    return {name: str(type_) for name, type_ in rows}
