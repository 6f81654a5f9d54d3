"""Deletes the rows that a pipeline has stored in a database. The tables stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from skewless.sql import schema
from skewless.sql.database import Database
from skewless.sql.statements import Statements
from skewless.sql.table import ResultTable


def tables(database: Database, pipeline: str, others: Iterable[ResultTable] = ()) -> Iterator[str]:
    """Yield the tables with rows of the pipeline. Its offsets are last: without them, stored rows are refused.

    `others` are further tables of results in the database. Raises StoreError or UnreachableError.
    """
    with database.converted_errors("looking for rows"):
        offsets = (schema.OFFSETS, database.statements["offsets_exist"], (pipeline,))
        of_tables = [
            (name, statements[statement], ())
            for statements in _statements(database, others)
            for name, statement in (
                (statements.table.name, "results_exist"),
                (statements.table.refused, "refused_exist"),
            )
            if not schema.other_pipelines(database, name, pipeline)  # the rows are theirs
        ]
        for name, statement, parameters in (*of_tables, offsets):
            if schema.exists(database, name) and database.query(statement, parameters)[0][0]:
                yield name


def _statements(database: Database, others: Iterable[ResultTable]) -> list[Statements]:
    return [database.statements, *(replace(database.statements, table=table) for table in others)]


def delete_rows(database: Database, table: str, pipeline: str, others: Iterable[ResultTable] = ()) -> int:
    """Delete the rows of the pipeline in one of its tables, and return their number.

    Each window of results is a transaction of its own, so that no statement exceeds its time limit.
    Raises StoreError or UnreachableError.
    """
    with database.converted_errors(f"deleting the rows of table {table}"):
        return sum(_deleted(database, table, pipeline, _statements(database, others)))


def _deleted(database: Database, table: str, pipeline: str, of_tables: list[Statements]) -> Iterator[int]:
    if table == schema.OFFSETS:
        yield _transaction(database, database.statements["offsets_delete"], pipeline)
        return
    (statements,) = (each for each in of_tables if table in {each.table.name, each.table.refused})
    if table == statements.table.refused:
        yield _transaction(database, statements["refused_delete"])
    else:
        while (first := database.query(statements["first_window"])[0][0]) is not None:
            yield _transaction(database, statements["window_delete"], first)


def _transaction(database: Database, statement: str, *parameters: object) -> int:
    database.begin()
    rows = database.execute(statement, parameters)
    database.commit()
    return rows
