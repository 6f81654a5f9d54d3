"""The page about the Python API as a user follows it: its blocks run in order, with a broker that gets new records."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import skewless as sk
from helpers.docs_blocks import ROOT, blocks
from helpers.kafka import create_topics
from skewless.lab.local.broker import Broker

pytestmark = [pytest.mark.thorough, pytest.mark.broker]

PAGE = ROOT / "docs" / "how-to" / "python.md"
START_S = 1_772_359_200
INTERVAL_S = 0.1
ONE = {"aggregator_partitions": 1}


class Orders:
    """Writes an order per interval, until `stop`. Each is a second later than the one before."""

    def __init__(self, broker: str) -> None:
        self.sent: list[str] = []
        self._producer = Producer({"bootstrap.servers": broker})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            at = datetime.fromtimestamp(START_S + len(self.sent), UTC).isoformat()
            customer = ("ada", "bob", "eve", "kim")[len(self.sent) % 4]
            self._producer.produce("orders", json.dumps({"customer": customer, "price": 0.01, "at": at}))
            self._producer.poll(0)
            self.sent.append(customer)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orders]:
    with Broker() as broker:  # of its own, because the page names the topics
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap)
        create_topics(broker.bootstrap, {"orders": 2})
        sending = Orders(broker.bootstrap)
        yield sending
        sending.stop()


def test_python_page_blocks_run_in_order_with_the_documented_effect(
    orders: Orders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program: dict[str, Any] = {}
    for block in blocks(PAGE):
        if block.language not in {"python", "yaml"}:
            continue
        if block.name:
            (tmp_path / block.name).write_text(block.text)
        if block.language == "python":
            exec(block.text, program)  # noqa: S102 - the project's own page
    program["test_orders_of_a_minute_are_summed"]()
    printed = capsys.readouterr().out
    assert "name: orders\n" in printed
    assert "[('B7', 2, '18.0')]\nsplitter.python raised KeyError (shop.py:9)\nTraceback (most" in printed
    assert "window: 'soon' is not a duration above 0 such as 30s," in printed
    assert "\nrunning\n" in printed
    counts, rows = program["counts"], program["rows"]
    assert (counts.late.records, counts.invalid.records) == (0, 0)
    assert 0 < counts.records <= len(orders.sent)
    every = program["pipeline"].results("all")
    assert sum(result.count for result in every) == counts.records
    assert program["table"].column("sum_price").to_pylist() == [result.sum_price for result in rows]
    assert all(result.sum_price == result.count * Decimal("0.01") for result in every)


def test_pipeline_of_arguments_runs_with_them_next_to_the_file_of_another_pipeline(
    orders: Orders, tmp_path: Path
) -> None:
    (tmp_path / "pipeline.yaml").write_text("name: other\nsource: {topic: missing}\n")
    time = {"field": "at", "unit": "iso8601"}
    pipeline = sk.Pipeline("orders", key="customer", time=time, window="1h", aggregates=["count"], topics=ONE)
    with pipeline.up() as run:
        orders.stop()
        counts = run.drain()
    assert counts.records == len(orders.sent) == sum(result.count for result in pipeline.results("all"))
    assert sorted(result.key for result in pipeline.results()) == sorted(set(orders.sent))
    # No record has this field, so that no result is computed.
    invalid = sk.Pipeline("orders", name="invalid", key="user", topics=ONE)
    with (
        pytest.raises(sk.CheckFailedError, match=f"none of {len(orders.sent)} records is in a result"),
        invalid.up() as run,
    ):
        run.drain()
