"""The blocks of the page about notebooks run, one after the other, in a session of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from docs_blocks import ROOT, blocks
from support_kafka import WAIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "how-to" / "notebook.md"


def test_the_blocks_of_the_page_do_what_they_say(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_language: dict[str, list[str]] = {}
    for block in blocks(PAGE):
        by_language.setdefault(block.language, []).append(block.text)
    (lines,) = by_language["json"]
    (tmp_path / "pipeline.yaml").write_text(by_language["yaml"][0])
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "orders.json").write_text(lines)
    admin, producer = AdminClient({"bootstrap.servers": broker}), Producer({"bootstrap.servers": broker})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
    for line in lines.splitlines():
        producer.produce("orders", line)
    assert producer.flush(WAIT_S) == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKEWLESS__KAFKA__BOOTSTRAP_SERVERS", broker)
    notebook: dict[str, Any] = {}
    for text in by_language["python"]:
        exec(text, notebook)  # noqa: S102 - the project's own page
    admin.delete_topics(["orders"])["orders"].result(WAIT_S)
    assert notebook["spark"] is spark
    assert dict(notebook["total"].to_numpy().tolist()) == {"ada": 13.5, "bob": 3.99}
    assert notebook["found"].tuples == len(lines.splitlines())
    assert notebook["facts"]["stream"]["keys"] == 2
