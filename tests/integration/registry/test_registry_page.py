"""The page about the schema registry as a user follows it, with a real registry, from the file to the results."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from helpers.avro import encoded, record_of
from helpers.docs_blocks import ROOT, blocks
from helpers.followed_page import Reader
from helpers.kafka import START_MS, create_topics
from helpers.schema_registry import RegistryServer

pytestmark = pytest.mark.thorough

PAGE = ROOT / "docs" / "how-to" / "schema-registry.md"
URL = "https://registry.example.org:8081"
USER = record_of("User", country="string")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
CLICK: Any = record_of("Click", user=USER, price=DECIMAL, at={"type": "long", "logicalType": "timestamp-micros"})


def test_registry_page_commands_as_written_show_the_results_of_avro(
    broker: str, registry_server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_id = registry_server.register("clicks-value", CLICK)
    names = {(block.language, block.name): block.text for block in blocks(PAGE)}
    file, commands = names["yaml", "clicks.yaml"], names["sh", ""]
    assert URL in file
    (tmp_path / "clicks.yaml").write_text(file.replace(URL, registry_server.url))
    create_topics(broker, {"clicks": 1})
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(30):
        at = (START_MS + number * 1000) * 1000
        record = {"user": {"country": f"c{number % 3}"}, "price": Decimal("12.50"), "at": at}
        producer.produce("clicks", encoded(CLICK, record, schema_id))
    assert producer.flush(60) == 0
    reader = Reader(tmp_path, broker, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    output = reader.run(commands)
    shown = [line.split() for line in output.splitlines()]
    for country in ("c0", "c1", "c2"):
        found = [line for line in shown if country in line]
        assert any({"10", "125"} <= {*line} or {"10", "125.0"} <= {*line} for line in found), output
