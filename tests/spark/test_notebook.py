"""The blocks of the page about notebooks run in order, in the user's own Spark session."""

from __future__ import annotations

import ast
import time
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
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    monkeypatch.setenv("SKEWLESS__NAME", f"notebook-{time.time_ns()}")  # other tests use the broker too
    notebook: dict[str, Any] = {}
    shown = []
    for block in blocks(PAGE):
        if block.language == "python":
            exec(block.text, notebook)  # noqa: S102 - the project's own page
            last = ast.parse(block.text).body[-1]
            if isinstance(last, ast.Expr) and isinstance(last.value, ast.Name):
                shown.append(notebook[last.value.id])
    assert notebook["spark"] is spark
    # The last one is a Series of pandas.
    assert [each._repr_html_().count("<tr>") > 1 for each in shown[:-1]] == [True] * 4
    assert notebook["report"].measures["cardinality"] == 2
    assert notebook["plan"].workers == 4
    assert notebook["loads"]["even", 4] < notebook["loads"]["key", 4]
    assert [(row.key, row.sum_price) for row in notebook["rows"]] == [
        ("ada", Decimal("12.50")),
        ("bob", Decimal("3.99")),
        ("ada", Decimal("1.00")),
    ]
    assert notebook["total"].to_dict() == {"ada": 13.5, "bob": 3.99}
    assert dict(notebook["history"].to_numpy().tolist()) == {"ada": Decimal("13.50"), "bob": Decimal("3.99")}
    assert notebook["answer"].tuples == len(orders)
    (again,) = notebook["pipeline"].batch(spark).rows.groupBy().sum("count").collect()
    assert again[0] == len(orders)


def test_notebook_page_imports_only_the_package_plotly_and_spark() -> None:
    code = "\n".join(block.text for block in blocks(PAGE) if block.language == "python")
    imported = [
        ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert imported == [
        "import skewless as sk",
        "import plotly.express as px",
        "from pyspark.sql import SparkSession",
    ]
