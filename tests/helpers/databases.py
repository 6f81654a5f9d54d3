"""Real database servers for tests, from Debian's packages, each in a folder of its own on a free port."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from helpers.debian import ROOT, find_program
from helpers.waiting import until
from skewless.lab.local.ports import find_free_ports

START_S = 180.0
PASSWORD = "p@ss:/%word"  # noqa: S105 - of a server that lives as long as the tests


class Server(ABC):
    """A server process that can be stopped, killed and started again with its data."""

    scheme: str
    program: str
    packages: Sequence[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        (self.port,) = find_free_ports(1)
        self.child: subprocess.Popen[bytes] | None = None
        self._program = find_program(self.program, *self.packages)

    @property
    def user(self) -> str | None:
        """The system user of the server: servers refuse to run as root."""
        return "nobody" if ROOT else None

    def run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, user=self.user, cwd="/", stdin=subprocess.DEVNULL)

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        self.initialize()
        self.start()
        self.prepare()

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.child = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, user=self.user, cwd="/"
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.connect().close()
            except (psycopg.OperationalError, pymysql.err.OperationalError):
                if self.child.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((self.folder / "server.log").read_text(errors="replace")[-3000:]) from None
                time.sleep(0.05)
            else:
                return

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop it at once, with all connections, but cleanly."""
        if self.child is not None:
            self.child.send_signal(number)
            self.child.wait(START_S)
            self.child = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def url(self, database: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/{database}"

    @abstractmethod
    def initialize(self) -> None: ...

    @abstractmethod
    def command(self) -> Sequence[str]: ...

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def connect(self, database: str = "") -> Any:
        """Connect as the administrator, with autocommit."""

    @abstractmethod
    def create_database(self, name: str) -> None: ...

    @abstractmethod
    def cut_connections(self) -> None:
        """End all connections of user skewless."""

    @abstractmethod
    def offer_tls(self, *, offered: bool) -> None:
        """Offer TLS to clients, with `server.key` and `server.crt` in the folder of the data, or no longer."""

    def execute(self, statement: str, database: str = "") -> list[tuple[Any, ...]]:
        with contextlib.closing(self.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []


class PostgresqlServer(Server):
    scheme, program, packages = "postgresql", "postgres", ("postgresql",)

    def initialize(self) -> None:
        initdb = str(Path(self._program).with_name("initdb"))
        options = ("--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--wal-segsize=1")
        self.run(initdb, "-D", str(self.data), "-U", "postgres", *options)
        # The user of the pipeline has to know its password.
        hba = self.data / "pg_hba.conf"
        hba.write_text("host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n")

    def command(self) -> Sequence[str]:
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "deadlock_timeout": "100ms"}
        # Shared memory in the folder of the data goes with it. A killed server leaves its own in /dev/shm.
        options["dynamic_shared_memory_type"] = "mmap"
        # Files outlive a kill of the server without fsync: only a crash of the machine would lose them.
        options |= {"fsync": "off", "min_wal_size": "2MB"}
        return [
            self._program, "-D", str(self.data), "-p", str(self.port),
            *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
        ]  # fmt: skip

    def prepare(self) -> None:
        self.execute(f"CREATE ROLE skewless LOGIN PASSWORD '{PASSWORD}'")

    def connect(self, database: str = "") -> Any:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname=database or "postgres", autocommit=True
        )

    def create_database(self, name: str) -> None:
        self.execute(f"CREATE DATABASE {name} OWNER skewless")

    def cut_connections(self) -> None:
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'skewless'")

    def offer_tls(self, *, offered: bool) -> None:
        self.execute(f"ALTER SYSTEM SET ssl = {offered}")
        self.execute("SELECT pg_reload_conf()")
        until(lambda: self.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(offered,)])


class MariadbServer(Server):
    scheme, program = "mysql", "mariadbd"
    packages = ("mariadb-server-core", "mariadb-client-core")
    """The server, and a program that its installation needs. Package mariadb-server would create a database, too."""
    # Without fsync, as above. 2: a commit writes the log to the file.
    storage = ("--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=8M")
    tls: Sequence[str] = ()

    @property
    def folders(self) -> Sequence[str]:
        """Options that name the server's own folders.

        At its start, a server deletes the temporary tables of all servers from `tmpdir`. Another server of the folder
        then ends with a segmentation fault.
        """
        return f"--datadir={self.data}", f"--tmpdir={self.temporary}"

    @property
    def temporary(self) -> Path:
        return self.folder / "temporary"

    def initialize(self) -> None:
        install = find_program("mariadb-install-db", *self.packages)
        self.temporary.mkdir()
        if self.user is not None:
            shutil.chown(self.temporary, self.user)
        options = ("--auth-root-authentication-method=normal", "--skip-test-db")
        self.run(install, "--no-defaults", *self.folders, *options, *self.storage)

    def command(self) -> Sequence[str]:
        return [
            self._program, "--no-defaults", *self.folders, f"--port={self.port}", "--bind-address=127.0.0.1",
            f"--socket={self.folder}/socket", f"--pid-file={self.folder}/pid", "--skip-name-resolve", *self.storage,
            *self.tls,
        ]  # fmt: skip

    def prepare(self) -> None:
        self.execute(f"CREATE USER skewless@'%' IDENTIFIED BY '{PASSWORD}'")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        super().stop(number)

    def connect(self, database: str = "") -> Any:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database or None, autocommit=True, charset="utf8mb4"
        )

    def create_database(self, name: str) -> None:
        self.execute(f"CREATE DATABASE {name}")
        self.execute(f"GRANT ALL ON {name}.* TO skewless@'%'")

    def cut_connections(self) -> None:
        rows = self.execute("SELECT id FROM information_schema.processlist WHERE user = 'skewless'")
        for (number,) in rows:
            with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.InternalError):
                self.execute(f"KILL {number}")

    def offer_tls(self, *, offered: bool) -> None:
        self.stop()
        self.tls = (f"--ssl-key={self.data}/server.key", f"--ssl-cert={self.data}/server.crt") if offered else ()
        self.start()


SERVERS: dict[str, type[Server]] = {"postgresql": PostgresqlServer, "mysql": MariadbServer}


@dataclass(frozen=True)
class TestDatabase:
    """An empty database, and how a test reads it independently of the code that it tests."""

    __test__ = False
    dialect: str
    url: str
    server: Server | None
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of section `sink` that reach it."""
        return {"url": self.url, **({"username": "skewless", "password": PASSWORD} if self.server else {})}

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as the administrator, and return its rows."""
        if self.server is not None:
            return self.server.execute(statement, self.name)
        with contextlib.closing(sqlite3.connect(self.url.partition("://")[2], timeout=60)) as connection:
            rows = list(connection.execute(statement))
            connection.commit()
            return rows

    def quoted(self, name: str) -> str:
        return f"`{name}`" if self.dialect == "mysql" else f'"{name}"'


def new_database(dialect: str, server: Callable[[str], Server], folder: Path) -> TestDatabase:
    """Create an empty database; `server` returns the running server of a dialect."""
    name = f"t{uuid.uuid4().hex[:10]}"
    if dialect not in SERVERS:
        return TestDatabase(dialect, f"{dialect}://{folder}/{name}.db", None, name)
    running = server(dialect)
    running.create_database(name)
    return TestDatabase(dialect, running.url(name), running, name)


@contextlib.contextmanager
def running_servers() -> Iterator[Callable[[str], Server]]:
    """Yield a function that returns the server of a dialect, and starts it when it is first needed."""
    servers: dict[str, Server] = {}
    # Not in pytest's own folder: only its user may enter it, and the servers run as another one.
    folder = Path(tempfile.mkdtemp(prefix="skewless-databases-"))
    folder.chmod(0o755)

    def server(dialect: str) -> Server:
        if dialect not in servers:
            servers[dialect] = SERVERS[dialect](folder / dialect)
            servers[dialect].create()
        return servers[dialect]

    try:
        yield server
    finally:
        for running in servers.values():
            running.kill()
        shutil.rmtree(folder, ignore_errors=True)
