"""A database that is slow, locked, read-only or out of connections: the sink repeats, and stores everything once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from helpers.databases import PASSWORD, SERVERS, Server, TestDatabase, new_database
from helpers.debian import ROOT
from helpers.tiers import thorough_except
from helpers.waiting import until
from integration.sql.encrypted import encrypted
from integration.sql.sql_sink import Sink, result
from skewless.errors import TransactionAbortedError, UnavailableError
from skewless.sql.dialects import DATABASES

Fault = Callable[[TestDatabase], contextlib.AbstractContextManager[None]]


def server_of(database: TestDatabase) -> Server:
    assert database.server is not None
    return database.server


@contextlib.contextmanager
def locked(database: TestDatabase) -> Iterator[None]:
    """Lock the offsets by a transaction that does not end."""
    if database.dialect == "sqlite":
        with contextlib.closing(sqlite3.connect(database.url.removeprefix("sqlite://"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
        return
    with contextlib.closing(server_of(database).connect(database.name)) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM skewless_offsets FOR UPDATE")
        yield


@contextlib.contextmanager
def read_only(database: TestDatabase) -> Iterator[None]:
    """Refuse changes, as a replica does."""
    server = server_of(database)
    if database.dialect == "postgresql":
        server.execute("ALTER ROLE skewless SET default_transaction_read_only = on")
        server.cut_connections()
    else:
        server.execute("SET GLOBAL read_only = 1")
    try:
        yield
    finally:
        if database.dialect == "postgresql":
            server.execute("ALTER ROLE skewless RESET default_transaction_read_only")
        else:
            server.execute("SET GLOBAL read_only = 0")


@contextlib.contextmanager
def without_connections(database: TestDatabase) -> Iterator[None]:
    """Refuse connections, because there are too many of them."""
    server = server_of(database)
    if database.dialect == "postgresql":
        change, undo = "ALTER ROLE skewless CONNECTION LIMIT 0", "ALTER ROLE skewless CONNECTION LIMIT -1"
    else:
        change, undo = (f"ALTER USER skewless@'%' WITH MAX_USER_CONNECTIONS {number}" for number in (1, 0))
    server.execute(change)
    server.cut_connections()
    with contextlib.ExitStack() as stack:
        stack.callback(server.execute, undo)
        if database.dialect == "mysql":
            login: dict[str, Any] = {"host": "127.0.0.1", "port": server.port, "user": "skewless"}
            stack.enter_context(contextlib.closing(pymysql.connect(**login, password=PASSWORD)))
        yield


@contextlib.contextmanager
def slow(database: TestDatabase) -> Iterator[None]:
    """Make each new row take longer than a statement may."""
    match database.dialect:
        case "postgresql":
            database.query(
                "CREATE FUNCTION wait() RETURNS trigger AS "
                "$$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$ LANGUAGE plpgsql"
            )
            action = "FOR EACH ROW EXECUTE FUNCTION wait()"
        case "mysql":
            action = "FOR EACH ROW SET @waited = SLEEP(60)"
        case _:
            numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
            database.query(f"CREATE VIEW endless AS {numbers}")
            action = "BEGIN SELECT count(*) FROM endless; END"
    database.query(f"CREATE TRIGGER slow BEFORE INSERT ON p {action}")
    try:
        yield
    finally:
        database.query("DROP TRIGGER slow" + (" ON p" if database.dialect == "postgresql" else ""))


FAULTS: list[tuple[str, Fault, str]] = [
    *((dialect, locked, "lock_timeout") for dialect in DATABASES),
    *((dialect, slow, "statement_timeout") for dialect in DATABASES),
    *((dialect, read_only, "read_only") for dialect in SERVERS),
    ("postgresql", without_connections, "connection"),
    ("mysql", without_connections, "resources"),
]


SMALL_DISK_MB = 32
"""MariaDB extends the file of a table by 8 MB at once."""


@contextlib.contextmanager
def small_disk(database: TestDatabase, folder: Path) -> Iterator[Path]:
    """Put the tables of a database on a file system of a few MB; yields its folder."""
    data = folder / "disk"
    if database.dialect == "postgresql":
        data = server_of(database).folder / f"disk-{database.name}"
    elif database.dialect == "mysql":
        data = server_of(database).data / database.name  # each table is a file of this folder
    else:
        data = Path(database.url.removeprefix("sqlite://")).parent
    data.mkdir(exist_ok=True)
    options = [(entry.name, entry.read_bytes()) for entry in data.iterdir()]
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_MB}m,mode=0777", "tmpfs", data], check=True)
    try:
        for name, content in options:
            (data / name).write_bytes(content)
        if database.dialect == "postgresql":
            server = server_of(database)
            assert server.user is not None  # ROOT
            shutil.chown(data, server.user)
            server.execute(f"CREATE TABLESPACE disk LOCATION '{data}'")
            server.execute("GRANT CREATE ON TABLESPACE disk TO skewless")
            server.execute(f"ALTER DATABASE {database.name} SET default_tablespace = 'disk'")
        yield data
    finally:
        if database.dialect == "postgresql":
            server_of(database).execute(f"DROP DATABASE {database.name}")
            server_of(database).execute("DROP TABLESPACE disk")
        elif database.dialect == "mysql":
            for (table,) in database.query("SHOW TABLES"):
                database.query(f"DROP TABLE {table}")
        subprocess.run(["umount", "--lazy", data], check=True)


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill a file system to its last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(disk).free == 0
    yield
    filler.unlink()


def is_stored(sink: Sink, *keys: str) -> bool:
    """Try once to store results, as the engine does; returns whether they were stored."""
    try:
        sink.step = sink.new_step()
        sink.start()
        sink.store(list(map(result, keys)))
    except TransactionAbortedError:
        sink.output.abort(replace=True)
        return False
    except UnavailableError:
        return False
    return True


def retries(sink: Sink, cause: str) -> float:
    metrics = {(sample.name, *sample.labels): sample.value for sample in sink.output.collect_metrics()}
    return metrics["skewless_sink_retries_total", cause]


def stored(database: TestDatabase) -> tuple[list[str], int]:
    """Keys in the table, and the next offset."""
    keys = sorted(key for (key,) in database.query(f"SELECT {database.quoted('key')} FROM p"))
    ((offset,),) = database.query("SELECT next_offset FROM skewless_offsets")
    return keys, offset


@pytest.mark.parametrize(
    ("dialect", "fault", "cause"), FAULTS, ids=lambda value: value if isinstance(value, str) else value.__name__
)
def test_store_during_a_fault_of_the_database_is_repeated_until_it_ends(
    dialect: str, fault: Fault, cause: str, database_servers: Any, tmp_path: Any
) -> None:
    database = new_database(dialect, database_servers, tmp_path)
    sink = Sink(database, lock_timeout_s=0.1, statement_timeout_s=0.5 if fault is slow else 30)
    until(lambda: is_stored(sink, "a"))  # a busy database may take longer than the timeout of a statement
    before = retries(sink, cause)
    with fault(database):
        until(lambda: is_stored(sink, "b") or retries(sink, cause) > before)
        assert stored(database) == (["a"], 1)
        assert not sink.output.ready
    until(lambda: is_stored(sink, "b"))
    assert stored(database) == (["a", "b"], 2)


def test_store_after_the_loss_of_an_encrypted_connection_connects_again(database_servers: Any, tmp_path: Path) -> None:
    database = new_database("postgresql", database_servers, tmp_path)
    with encrypted(server_of(database), tmp_path):
        sink = Sink(database)
        until(lambda: is_stored(sink, "a"))
        ((process,),) = database.query(
            "SELECT pid FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE ssl AND datname = current_database() "
            "AND usename = 'skewless'"
        )
        os.kill(process, signal.SIGKILL)  # closes the connection, not the session of TLS; the server restarts
        until(lambda: not Path(f"/proc/{process}").exists())
        until(lambda: is_stored(sink, "b"))
        assert retries(sink, "connection") >= 1
    assert stored(database) == (["a", "b"], 2)


@pytest.mark.skipif(not ROOT, reason="only root can mount a file system of a limited size")
@pytest.mark.parametrize("dialect", DATABASES)
def test_store_full_disk_is_repeated_until_there_is_room(dialect: str, database_servers: Any, tmp_path: Path) -> None:
    database = new_database(dialect, database_servers, tmp_path)
    keys = [f"{number:0500}" for number in range(4_000)]
    with small_disk(database, tmp_path) as disk:
        sink = Sink(database)
        assert is_stored(sink, "a")
        with full(disk):
            until(lambda: is_stored(sink, *keys) or retries(sink, "resources") > 0)
            assert stored(database) == (["a"], 1)
            assert not sink.output.ready
        until(lambda: is_stored(sink, *keys))
        assert stored(database) == ([*keys, "a"], 1 + len(keys))
        sink.output.close()


@pytest.mark.parametrize("dialect", thorough_except(["mysql"], ["postgresql", "mysql"]))
def test_store_deadlock_repeats_the_transaction(dialect: str, database_servers: Any, tmp_path: Any) -> None:
    database = new_database(dialect, database_servers, tmp_path)
    if dialect == "postgresql":
        # A session looks for a deadlock once, after this time. The other one has to wait for the sink by then.
        server_of(database).execute(f"ALTER DATABASE {database.name} SET deadlock_timeout = '30s'")
    sink = Sink(database, lock_timeout_s=90, statement_timeout_s=90).start()
    sink.store([result(f"k{number}") for number in range(200)])
    waits = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE usename = 'skewless' AND wait_event_type = 'Lock'",
        "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    }[dialect]
    with contextlib.closing(server_of(database).connect(database.name)) as other, other.cursor() as cursor:
        if dialect == "postgresql":
            cursor.execute("SET deadlock_timeout = '120s'")  # so that the sink is the victim
        cursor.execute("BEGIN")
        cursor.execute("UPDATE p SET count = 7")  # MariaDB's victim is the transaction with fewer changes
        sink.read([result("k0", revision=1, count=2)])
        storing = threading.Thread(target=sink.commit)
        storing.start()
        until(lambda: database.query(waits) == [(1,)])
        cursor.execute("UPDATE skewless_offsets SET updated_at = updated_at")
        cursor.execute("COMMIT")
    storing.join()
    # More than one if the sink's next attempt gets the row of the offset before the other session does.
    assert retries(sink, "deadlock") >= 1
    assert database.query("SELECT count FROM p WHERE revision = 1") == [(2,)]
    assert database.query("SELECT count(*) FROM p WHERE count = 7") == [(199,)]
    assert stored(database)[1] == 201
