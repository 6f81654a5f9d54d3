"""Kafka Connect with the configuration for Iceberg of its page, from the pipeline to committed rows of the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import fastavro
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from helpers.docs_blocks import ROOT, blocks
from helpers.kafka import START_MS, create_topics, free_ports, read
from helpers.kafka_connect import install_iceberg, running_worker
from helpers.waiting import until
from skewless.lab.local.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

PAGE = ROOT / "docs" / "how-to" / "connect.md"
FILES = {"orders-final.yaml": "yaml", "worker.properties": "properties", "iceberg.properties": "properties"}
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


def test_connect_page_iceberg_as_written_has_each_final_result_once(tmp_path: Path) -> None:
    texts = {block.name: block.text for block in blocks(PAGE) if block.name in FILES}
    assert texts.keys() == FILES.keys()
    install_iceberg(tmp_path / "connect" / "plugins")
    with Broker() as broker:
        create_topics(broker.bootstrap, {"orders": 1, "control-iceberg": 1})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            order = {"customer": f"c{number % 3}", "total": 12.5, "at": START_MS + number * 5000}
            producer.produce("orders", json.dumps(order).encode())
        assert producer.flush(60) == 0
        for name, text in texts.items():
            addressed = text.replace("kafka:9092", broker.bootstrap).replace("/srv/", f"{tmp_path}/")
            (tmp_path / name).write_text(addressed)
        with (tmp_path / "worker.properties").open("a") as worker:  # the port of its API must be free on this machine
            worker.write(f"listeners=http://127.0.0.1:{free_ports(1)[0]}\n")
        subprocess.run(
            [sys.executable, "-m", "skewless", "up", "-f", "orders-final.yaml", "--drain"],
            cwd=tmp_path,
            env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap},
            check=True,
            capture_output=True,
        )
        results = [json.loads(record.value or b"") for record in read(broker.bootstrap, "orders.aggregates")]
        assert sum(result["count"] for result in results) == RECORDS
        with running_worker(tmp_path, "worker.properties", "iceberg.properties") as log:
            table = tmp_path / "warehouse" / "shop" / "orders_by_customer"
            try:
                until(lambda: len(rows_of(table)) >= len(results), every_s=0.5)
            except AssertionError:
                raise AssertionError(log.read_text(errors="replace")[-3000:]) from None
            stored = rows_of(table)
    in_order = sorted(stored, key=lambda row: (row["window_start"], row["key"]))
    assert in_order == sorted(results, key=lambda row: (row["window_start"], row["key"]))
