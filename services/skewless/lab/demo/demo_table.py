"""Stores the counts of the demo in a file of SQLite, and describes how to query it."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings

TOP = 5


def keep(stored: Path, database: Path, settings: PipelineSettings) -> Path:
    """Copy the database to its final file, and write the pipeline's file next to it, which is returned.

    `settings` name the final file. A file of an earlier demo is replaced.
    """
    copy = database.with_name(f"{database.name}.part")
    copy.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(stored)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))  # one file, without a write-ahead log
    for name in (f"{database.name}-wal", f"{database.name}-shm"):
        database.with_name(name).unlink(missing_ok=True)
    copy.replace(database)
    pipeline_file = database.with_name(f"{database.name}.yaml")
    comment = f"# The pipeline that has filled {database.name}. Its broker has ended."
    pipeline_file.write_text(f"{comment}\n{loader.dump(settings)}")
    return pipeline_file


def queries(database: Path, pipeline_file: Path, table: str) -> Iterator[str]:
    """Yield the commands that show the most frequent keys: of all windows, and of the last one without sqlite3."""
    sql = f"SELECT key, sum(count) FROM {table} GROUP BY key ORDER BY 2 DESC LIMIT {TOP}"  # noqa: S608 - for the user
    yield f'sqlite3 {shlex.quote(str(database))} "{sql}"'
    yield f"skewless results -f {shlex.quote(str(pipeline_file))} --top {TOP}"
