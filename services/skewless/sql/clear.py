"""Deletes the rows that a pipeline has stored in a database. The tables stay."""

from __future__ import annotations

from collections.abc import Iterator

from skewless.errors import StoreError
from skewless.sql import schema
from skewless.sql.database import Database


def tables(database: Database, pipeline: str) -> Iterator[str]:
    """Yield the tables with rows of the pipeline. Its offsets are last: without them, stored rows are refused."""
    statements, table = database.statements, database.statements.table
    for name, statement, parameters in (
        (table.name, statements["results_exist"], ()),
        (table.refused, statements["refused_exist"], ()),
        (schema.OFFSETS, statements["offsets_exist"], (pipeline,)),
    ):
        if schema.exists(database, name) and database.query(statement, parameters)[0][0]:
            yield name


def delete_rows(database: Database, table: str, pipeline: str) -> int:
    """Delete the rows of the pipeline in one of its tables, and return their number. Raises StoreError if refused.

    Each window of results is a transaction of its own, so that no statement exceeds its time limit.
    """
    try:
        return sum(_deleted(database, table, pipeline))
    except database.errors as error:
        message = database.failure_of(error).message
        raise StoreError(f"deleting the rows of table {table} in {database.address}: {message}") from None


def _deleted(database: Database, table: str, pipeline: str) -> Iterator[int]:
    statements = database.statements
    if table == schema.OFFSETS:
        yield _transaction(database, statements["offsets_delete"], pipeline)
    elif table == statements.table.refused:
        yield _transaction(database, statements["refused_delete"])
    else:
        while (first := database.query(statements["first_window"])[0][0]) is not None:
            yield _transaction(database, statements["window_delete"], first)


def _transaction(database: Database, statement: str, *parameters: object) -> int:
    database.begin()
    rows = database.execute(statement, parameters)
    database.commit()
    return rows
