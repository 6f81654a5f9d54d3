"""The file of SQLite, which several processes open."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.sql.database import Database
from skewless.sql.dialects import database_of

FILES, PROCESSES = 20, 4


def database(file: Path, lock_timeout_s: float = 10.0) -> Database:
    sink = {"url": f"sqlite:///{file}", "lock_timeout_s": lock_timeout_s}
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "sink": sink})
    assert settings.sink is not None
    return database_of(settings.sink, settings.sink_table())


def test_sqlite_new_file_that_is_opened_several_times_at_once_is_opened_each_time(tmp_path: Path) -> None:
    with ThreadPoolExecutor(PROCESSES) as pool:
        for number in range(FILES):
            databases = [database(tmp_path / f"{number}.db") for _ in range(PROCESSES)]
            list(pool.map(lambda each: each.connect(), databases))
            assert [each.query("PRAGMA journal_mode") for each in databases] == [[("wal",)]] * PROCESSES
            for each in databases:
                each.close()


def test_sqlite_new_file_that_stays_locked_is_an_error_after_the_timeout(tmp_path: Path) -> None:
    file = tmp_path / "locked.db"
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        database(file, lock_timeout_s=0.1).connect()
    other.close()


def test_sqlite_file_that_the_system_refuses_is_reported_when_it_is_opened(tmp_path: Path) -> None:
    refused = database(tmp_path / ("n" * 300))  # like a folder that one may not enter
    refused.require_existence()
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        refused.connect()


def test_sqlite_file_that_this_user_may_not_write_is_a_final_error_when_it_is_opened(tmp_path: Path) -> None:
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DIRECTORY
    file = database(tmp_path / "p.db")
    refused = file.failure_of(error)
    assert (refused.is_final, "grant this user the right to write" in refused.message) == (True, True)
    file.connect()
    assert not file.failure_of(error).is_final
    file.close()
