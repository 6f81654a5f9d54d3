"""Kafka Connect with configurations of its page, from the pipeline to committed rows of the tables."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import fastavro
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from helpers.databases import PASSWORD, PostgresqlServer
from helpers.docs_blocks import ROOT, blocks
from helpers.kafka import START_MS, create_topics, read
from helpers.kafka_connect import DISCOVERY, install_iceberg, install_jdbc, running_worker
from helpers.schema_registry import RegistryServer
from helpers.stage_hosts import share_host
from helpers.waiting import until
from skewless.cli.main import main
from skewless.config.loader import load
from skewless.config.result_codec import result_reader
from skewless.lab.local.ports import find_free_ports

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

PAGE = ROOT / "docs" / "how-to" / "connect.md"
RECORDS = 60


def rows_of(table: Path) -> list[dict[str, Any]]:
    """Return the rows of the newest snapshot of a table; none if nothing is committed."""
    hint = table / "metadata" / "version-hint.text"
    if not hint.exists():
        return []
    metadata = json.loads((table / "metadata" / f"v{hint.read_text()}.metadata.json").read_text())
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata["snapshots"]}
    if metadata["current-snapshot-id"] not in snapshots:
        return []
    manifests = entries(snapshots[metadata["current-snapshot-id"]]["manifest-list"])
    files = [entry["data_file"]["file_path"] for part in manifests for entry in entries(part["manifest_path"])]
    return [row for file in files for row in pq.read_table(urlparse(file).path).to_pylist()]


def entries(url: str) -> list[Any]:
    """Return the records of a file of Avro."""
    with Path(urlparse(url).path).open("rb") as file:
        return list(fastavro.reader(file))


def write_files(folder: Path, addresses: Mapping[str, str], *names: str) -> None:
    """Write files of the page to a folder, with addresses of this test instead of those of the page."""
    texts = {block.name: block.text for block in blocks(PAGE) if block.name in names}
    assert texts.keys() == set(names)
    for name, text in texts.items():
        for address, own in {**addresses, "/srv/": f"{folder}/"}.items():
            text = text.replace(address, own)  # noqa: PLW2901 - one replacement after the other
        if name.startswith("worker"):  # the port of its API must be free on this machine
            text += f"listeners=http://127.0.0.1:{find_free_ports(1)[0]}\n{DISCOVERY}"  # noqa: PLW2901 - as above
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def orders(broker: str) -> str:
    """Create the topic of the page, which has orders. Returns the address of its broker."""
    create_topics(broker, {"orders": 1})
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(RECORDS):
        order = {"customer": f"c{number % 3}", "total": 12.5, "at": START_MS + number * 5000}
        producer.produce("orders", json.dumps(order).encode())
    assert producer.flush(60) == 0
    return broker


@pytest.fixture
def run_pipeline(orders: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Return a function that runs the pipeline of a file to its end. Later, nothing of the pipeline is left.

    The pipelines of the page have the same name.
    """
    share_host(monkeypatch)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", orders)
    files: list[Path] = []

    def run(file: Path) -> None:
        files.append(file)
        command("up", "-f", str(file), "--drain", "--log-dir", str(file.parent))

    yield run
    for file in files:
        command("reset", "-f", str(file), "--delete", "--yes")


def command(*arguments: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output


def wait_for(condition: Callable[[], bool], log: Path) -> None:
    try:
        until(condition, every_s=0.5)
    except AssertionError:
        raise AssertionError(log.read_text(errors="replace")[-3000:]) from None


def test_connect_page_iceberg_as_written_has_each_final_result_once(
    orders: str, run_pipeline: Callable[[Path], None], tmp_path: Path
) -> None:
    install_iceberg(tmp_path / "connect" / "plugins")
    create_topics(orders, {"control-iceberg": 1})
    write_files(tmp_path, {"kafka:9092": orders}, "orders-final.yaml", "worker.properties", "iceberg.properties")
    run_pipeline(tmp_path / "orders-final.yaml")
    results = [json.loads(record.value or b"") for record in read(orders, "orders.aggregates")]
    assert sum(result["count"] for result in results) == RECORDS
    with running_worker(tmp_path, "worker.properties", "iceberg.properties") as log:
        table = tmp_path / "warehouse" / "shop" / "orders_by_customer"
        wait_for(lambda: len(rows_of(table)) >= len(results), log)
        stored = rows_of(table)
    in_order = sorted(stored, key=lambda row: (row["window_start"], row["key"]))
    assert in_order == sorted(results, key=lambda row: (row["window_start"], row["key"]))


def test_connect_page_jdbc_as_written_has_the_newest_results_of_avro(
    registry_server: RegistryServer,
    orders: str,
    run_pipeline: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    install_jdbc(tmp_path / "connect" / "plugins-jdbc")
    database = PostgresqlServer(Path(tempfile.mkdtemp(dir="/tmp")))
    database.create()
    try:
        database.create_database("shop")
        (tmp_path / "password").write_text(f"password={PASSWORD}")
        addresses = {
            "kafka:9092": orders,
            "https://registry:8081": registry_server.url,
            "http://registry:8080": f"http://127.0.0.1:{registry_server.port}",
            "database:5432": f"127.0.0.1:{database.port}",
            "connection.username=connect": "connection.username=skewless",
            "/secrets/database.properties": str(tmp_path / "password"),
        }
        write_files(tmp_path, addresses, "orders.yaml", "worker-avro.properties", "jdbc.properties")
        run_pipeline(tmp_path / "orders.yaml")
        to_json = result_reader(load(tmp_path / "orders.yaml", os.environ))
        newest = {
            (record.key or b"").decode(): json.loads(to_json(record.value or b""))
            for record in read(orders, "orders.aggregates")
        }

        def rows() -> dict[str, Any]:
            columns = "id, key, window_start at time zone 'UTC', count, sum, revision"
            found = database.execute(f"select {columns} from orders_by_customer", "shop")
            return {row[0]: row[1:] for row in found}

        expected = {
            name: (
                result["key"],
                datetime.fromtimestamp(result["window_start"] / 1000, UTC),
                result["count"],
                Decimal(str(result["sum"])),
                result["revision"],
            )
            for name, result in newest.items()
        }
        with running_worker(tmp_path, "worker-avro.properties", "jdbc.properties") as log:
            wait_for(lambda: has_table(database) and rows() == expected, log)
    finally:
        database.stop()


def has_table(database: PostgresqlServer) -> bool:
    return bool(database.execute("select 1 from pg_tables where tablename = 'orders_by_customer'", "shop"))
