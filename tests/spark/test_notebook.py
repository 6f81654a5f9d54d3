"""The blocks of the page about notebooks run in order, in the user's own Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from helpers.docs_blocks import ROOT, blocks
from helpers.waiting import WAIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

PAGE = ROOT / "docs" / "how-to" / "notebook.md"


@pytest.fixture
def orders(broker: str) -> Iterator[list[str]]:
    """Write the records of the page into its topic."""
    admin, producer = AdminClient({"bootstrap.servers": broker}), Producer({"bootstrap.servers": broker})
    (lines,) = (block.text.splitlines() for block in blocks(PAGE) if block.language == "json")
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
    for line in lines:
        producer.produce("orders", line)
    assert producer.flush(WAIT_S) == 0
    yield lines
    admin.delete_topics(["orders"])["orders"].result(WAIT_S)


def test_notebook_page_blocks_run_in_order_give_the_documented_results(
    spark: SparkSession, broker: str, orders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (document,) = (block.text for block in blocks(PAGE) if block.language == "yaml")
    (tmp_path / "pipeline.yaml").write_text(document)
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "orders.json").write_text("\n".join(orders))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKEWLESS__KAFKA__BOOTSTRAP_SERVERS", broker)
    notebook: dict[str, Any] = {}
    for block in blocks(PAGE):
        if block.language == "python":
            exec(block.text, notebook)  # noqa: S102 - the project's own page
    assert notebook["spark"] is spark
    assert dict(notebook["total"].to_numpy().tolist()) == {"ada": Decimal("13.50"), "bob": Decimal("3.99")}
    assert notebook["answer"].tuples == len(orders)
    assert notebook["report"]["stream"]["keys"] == 2
