"""Rows per second that a sink stores in each database, against a statement per row: one JSON line per run.

A real server with fsync at each commit and buffers of 1 GiB, in a folder of its own. The table first gets `--stored`
rows. Then transactions of `--transaction-rows` are stored, by default 2,000: half of the rows are new, half replace
(or, with `--mode merge`, are added to) rows of the newest window of 200,000 keys. `row by row` stores the same rows in
transactions of 2,000 with a statement for each row. Decoding of records is included in both. `without fsync and
checkpoints`, for SQLite, also has the pages that a transaction changes.

`--minutes` stores transactions for that time instead, `--rate` rows per second, and prints the times of the
transactions of each twelfth of it.

    PYTHONPATH=services:tests python tests/bench/bench_sink.py [--dialects postgresql,mysql,sqlite]
    [--stored 10000000] [--rows 400000] [--mode replace] [--transaction-rows 2000,4000] [--minutes 60 --rate 10000]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from helpers.databases import MariadbServer, PostgresqlServer, Server, new_database
from integration.sql.sql_sink import START, Flusher, Sink
from skewless.sql.dialects import DATABASES
from skewless.sql.rows import Row
from skewless.sql.sqlite import SqliteDatabase
from skewless.wire.record import OutputRecord
from skewless.wire.table_rows import row
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

NEWEST_KEYS = 200_000
PAGE = 4_096
FRAME_HEADER = 24
"""Bytes of a page of SQLite, and of what its write-ahead log adds to each."""
TRANSACTION_ROWS = 2_000
HOUR_MS = 3_600_000
FILL_ROWS = 20_000
"""Rows of a transaction that fills the table."""
BUFFERS = "1GB"


class DurablePostgresql(PostgresqlServer):
    """PostgreSQL with the durability of its defaults."""

    def command(self) -> Sequence[str]:
        options = {"fsync": "on", "shared_buffers": BUFFERS, "max_wal_size": "4GB", "min_wal_size": "80MB"}
        return [*super().command(), *(part for name, value in options.items() for part in ("-c", f"{name}={value}"))]


class DurableMariadb(MariadbServer):
    """MariaDB with the durability of its defaults."""

    storage = ("--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G")


DURABLE: dict[str, type[Server]] = {"postgresql": DurablePostgresql, "mysql": DurableMariadb}


@contextlib.contextmanager
def durable_server(dialect: str) -> Iterator[Server]:
    """Run a server in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="skewless-bench-") as name:
        Path(name).chmod(0o755)  # the servers run as users of their own
        server = DURABLE[dialect](Path(name, dialect))
        server.create()
        try:
            yield server
        finally:
            server.kill()


def record(window: int, number: int, revision: int) -> OutputRecord:
    """Return a row as the step of a sink yields it."""
    start, key = START + window * HOUR_MS, f"key-{number}"
    value = b'{"key":"%b","window_start":%d,"window_end":%d,"count":%d,"sum":%d,"mean":%d.5,"max":%d,"revision":%d}' % (
        key.encode(),
        start,
        start + HOUR_MS,
        number % 97,
        number,
        number,
        number,
        revision,
    )
    return row(0, revision, b"%d/%b" % (start, key.encode()), value)


def stored_rows(rows: int) -> Iterator[OutputRecord]:
    """Yield the rows that are there before: windows of NEWEST_KEYS keys, the newest is 0."""
    windows = -(-rows // NEWEST_KEYS)
    for index in range(rows):
        yield record(index // NEWEST_KEYS - windows + 1, index % NEWEST_KEYS, 0)


def transactions(rows: int, seed: int, size: int = TRANSACTION_ROWS) -> Iterator[list[OutputRecord]]:
    """Yield transactions: half of the rows are new ones of the next window."""
    draw = random.Random(seed)  # noqa: S311 - the same rows in each run
    half, new = size // 2, seed * rows
    for number in range(rows // size):
        updates = [record(0, key, number + 1) for key in draw.sample(range(NEWEST_KEYS), half)]
        yield [*updates, *(record(1, new + number * half + index, 0) for index in range(half))]


def store(sink: Sink, outputs: Sequence[OutputRecord]) -> float:
    """Store a transaction, and return its time in s."""
    started = time.perf_counter()
    sink.output.send(outputs)
    sink.offsets[0] += len(outputs)
    sink.output.commit({TopicPartition(sink.topic, 0): CommittedOffset(sink.offsets[0], "\n[3]", 0)})
    return time.perf_counter() - started


def measured(sink: Sink, rows: int, seed: int, size: int = TRANSACTION_ROWS) -> dict[str, Any]:
    prepared = list(transactions(rows, seed, size))
    times = [store(sink, outputs) for outputs in prepared]
    return {
        "rows_per_s": round(rows / sum(times)),
        "p50_ms": round(float(np.quantile(times, 0.5)) * 1000, 1),
        "p99_ms": round(float(np.quantile(times, 0.99)) * 1000, 1),
    }


def measured_without_fsync(sink: Sink, rows: int) -> dict[str, Any]:
    """Store transactions whose pages only go to the write-ahead log of SQLite, which no one waits for."""
    database = sink.database
    for pragma in ("wal_checkpoint(TRUNCATE)", "wal_autocheckpoint = 0", "synchronous = OFF"):
        database.query(f"PRAGMA {pragma}")
    found = measured(sink, rows, 3)
    pages = Path(f"{database.address.database}-wal").stat().st_size / (PAGE + FRAME_HEADER)
    database.close()
    database.connect()
    return {**found, "pages": round(pages * TRANSACTION_ROWS / rows)}


def sustained(sink: Sink, minutes: float, rate: int) -> Iterator[dict[str, Any]]:
    """Store transactions at an even rate, and yield their times in each twelfth of the time."""
    part_s = minutes * 60 / 12
    prepared = transactions(round(1.1 * minutes * 60 * rate), 1)
    started = time.monotonic()
    sent = 0
    for number in range(1, 13):
        times = []
        while time.monotonic() < started + number * part_s:
            outputs = next(prepared)
            time.sleep(max(0.0, started + sent / rate - time.monotonic()))
            times.append(store(sink, outputs))
            sent += len(outputs)
        p50, p99 = (round(float(np.quantile(times, share)) * 1000, 1) for share in (0.5, 0.99))
        yield {"minute": round(number * part_s / 60, 1), "rows": sent, "p50_ms": p50, "p99_ms": p99}


def store_each_row(sink: Sink) -> None:
    """Make the database execute a statement for each row."""
    database = sink.database
    statement = database.statements["add" if database.statements.table.adds else "upsert"]
    if database.settings.url.startswith("postgresql:"):
        columns = [f'"{column.name}"' for column in database.statements.table.columns]
        batch = f"SELECT {', '.join(columns)} FROM skewless_batch"
        statement = statement.replace(batch, f"VALUES ({', '.join(['%s'] * len(columns))})")

    def upsert(rows: Sequence[Row]) -> None:
        prepare = database.stored if isinstance(database, SqliteDatabase) else tuple
        for values in rows:
            database.execute(statement, prepare(values))

    database.upsert = upsert  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialects", default=",".join(DATABASES))
    parser.add_argument("--stored", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--transaction-rows", default=str(TRANSACTION_ROWS))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--mode", choices=["replace", "merge"], default="replace")
    arguments = parser.parse_args()
    for dialect in arguments.dialects.split(","):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(durable_server(dialect)) if dialect in DURABLE else None
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skewless-bench-")))
            for line in runs(dialect, server, folder, arguments):
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


def runs(dialect: str, server: Server | None, folder: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    database = new_database(dialect, lambda _dialect: server or DURABLE[dialect](folder), folder)
    aggregates = ["count", "sum", "max"] if arguments.mode == "merge" else ["count", "sum", "mean", "max"]
    kind = Flusher if arguments.mode == "merge" else Sink
    sink = kind(database, aggregates=aggregates)
    sink.start()
    filling: list[OutputRecord] = []
    for output in stored_rows(arguments.stored):
        filling.append(output)
        if len(filling) == FILL_ROWS:
            store(sink, filling)
            filling = []
    store(sink, filling)
    found = {"bench": "sink", "dialect": dialect, "mode": arguments.mode, "stored": arguments.stored}
    if arguments.minutes is not None:
        for part in sustained(sink, arguments.minutes, arguments.rate):
            yield {**found, "run": f"{arguments.rate} rows per second", **part}
        return
    for seed, size in enumerate(map(int, arguments.transaction_rows.split(",")), 10):
        together = measured(sink, arguments.rows, seed, size)
        yield {**found, "run": f"transactions of {size:,} rows", "rows": arguments.rows, **together}
    if dialect == "sqlite":
        without = measured_without_fsync(sink, arguments.rows)
        yield {**found, "run": "without fsync and checkpoints", "rows": arguments.rows, **without}
    store_each_row(sink)
    few = max(TRANSACTION_ROWS, arguments.rows // 20)
    each = measured(sink, few, 2)
    times = round(together["rows_per_s"] / each["rows_per_s"], 1)
    yield {**found, "run": "row by row", "rows": few, **each, "times_faster": times}


if __name__ == "__main__":
    main()
