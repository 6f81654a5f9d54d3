"""Connects to the database with the results of a pipeline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import StoreError, UnreachableError
from skewless.sql import schema as tables
from skewless.sql.database import Database
from skewless.sql.dialects import database_of

CONNECT_S = 15.0
"""Time after which a command gives up on a database."""
RETRY_S = 0.5


@contextlib.contextmanager
def opened_table(settings: PipelineSettings) -> Iterator[Database]:
    """Connect to the database of a pipeline to read its table, as `connected`.

    Raises StoreError if the table does not exist or does not fit.
    """
    database = database_of(settings.table_settings, settings.sink_table())
    database.require_existence()
    with connected(database):
        with database.converted_errors("checking the tables"):
            _require_table(database, creates=settings.table_settings.create)
            tables.require_fit(database)
        yield database


def _require_table(database: Database, *, creates: bool) -> None:
    """Raise StoreError if the table of results does not exist: it is that of a pipeline that has not run yet."""
    name = database.statements.table.name
    if tables.exists(database, name):
        return
    remedy = (
        "run the pipeline, whose sink creates it when it starts"
        if creates
        else "sink.create is off: create it with the output of `skewless sink schema`, and run the pipeline"
    )
    raise StoreError(f"table {name} in {database.address} does not exist: {remedy}")


@contextlib.contextmanager
def connected(database: Database) -> Iterator[None]:
    """Connect within CONNECT_S, until the end of the block.

    Raises UnreachableError, or StoreError if the database refuses permanently.
    """
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            database.connect()
        except database.errors as error:
            failure, address = database.failure_of(error), database.address
            if failure.is_final:
                raise StoreError(f"connecting to {address}: {failure.message}") from None
            if time.monotonic() + RETRY_S > deadline:
                raise UnreachableError(f"no answer from {address} within {CONNECT_S:g} s: {failure.message}") from None
            time.sleep(RETRY_S)
        else:
            break
    with contextlib.closing(database):
        yield
