"""Stores the counts of the demo in a file of SQLite, and queries it."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError

TOP = 5
COMMENT = "# The pipeline that has filled "
"""First words of the pipeline's file, by which another demo recognizes its own files."""


def check_replaceable(database: Path) -> None:
    """Raise ConfigurationError if the database or its pipeline's file exists and is not that of an earlier demo."""
    pipeline_file = _pipeline_file(database)
    if pipeline_file.exists() and pipeline_file.read_bytes().startswith(COMMENT.encode()):
        return
    for file in (database, pipeline_file):
        if file.exists():
            raise ConfigurationError(
                f"--database: {file}: exists and is not of an earlier demo: name another file, or remove it"
            )


def keep(stored: Path, database: Path, settings: PipelineSettings) -> Path:
    """Copy the database to its final file, and write the pipeline's file next to it, which is returned.

    `settings` name the final file. The files of an earlier demo are replaced.
    """
    copy = database.with_name(f"{database.name}.part")
    copy.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(stored)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))  # one file, without a write-ahead log
    for name in (f"{database.name}-wal", f"{database.name}-shm"):
        database.with_name(name).unlink(missing_ok=True)
    copy.replace(database)
    pipeline_file = _pipeline_file(database)
    comment = f"{COMMENT}{database.name}. Its broker has ended."
    pipeline_file.write_text(f"{comment}\n{loader.dump(settings, only_set=True)}")
    return pipeline_file


def _pipeline_file(database: Path) -> Path:
    return database.with_name(f"{database.name}.yaml")


def query(table: str) -> str:
    """Return the SQL statement that selects the most frequent keys of all windows."""
    return f"SELECT key, sum(count) FROM {table} GROUP BY key ORDER BY 2 DESC LIMIT {TOP}"  # noqa: S608 - from a fixed list


def rows(database: Path, table: str) -> list[str]:
    """Return the rows of the query, as sqlite3 prints them, but without control characters."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = connection.execute(query(table)).fetchall()
    return [f"{key if key.isprintable() else ascii(key)}|{count}" for key, count in found]


def results_command(pipeline_file: Path) -> list[str]:
    """Return the command that shows the most frequent keys of the last window."""
    return ["skewless", "results", "-f", str(pipeline_file), "--top", str(TOP)]


def results(pipeline_file: Path) -> list[str]:
    """Run this command, and return the lines of its output."""
    command = [sys.executable, "-m", *results_command(pipeline_file)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - its own
    return (found.stdout + found.stderr).splitlines()
