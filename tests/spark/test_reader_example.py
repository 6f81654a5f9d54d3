"""The Spark example reads the valid record of each key, and no aborted record."""

from __future__ import annotations

import importlib.util
import json
import uuid
from typing import TYPE_CHECKING

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from helpers.aggregates import results
from helpers.docs_blocks import ROOT
from helpers.kafka import START_MS
from helpers.waiting import WAIT_S
from skewless.wire.aggregates import aggregate_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = ROOT / "deploy" / "examples" / "readers" / "results_spark.py"


@pytest.fixture
def pipeline(broker: str) -> str:
    """Name of a pipeline with records of `aggregates`: two revisions of a key, and an aborted record."""
    name = f"p-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 2})
    for future in admin.create_topics([NewTopic(f"{name}.aggregates", 2, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": broker, "transactional.id": name, "log_level": 2})
    producer.init_transactions(WAIT_S)
    entry = aggregate_type(results("count", "sum"))
    for revision, end in (
        (0, producer.commit_transaction),
        (1, producer.commit_transaction),
        (2, producer.abort_transaction),
    ):
        producer.begin_transaction()
        for number in range(20):
            value = entry(f"k{number}", START_MS, START_MS + 60_000, number + revision + 1, 10 * number, revision)
            key = f"{START_MS}/k{number}"
            producer.produce(f"{name}.aggregates", msgspec.json.encode(value), key=key, partition=number % 2)
        producer.flush(WAIT_S)
        end(WAIT_S)
    return name


def test_spark_example_reads_the_results(
    spark: SparkSession, broker: str, pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("results_spark", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(broker, pipeline)
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(entries) == 20
    found = {
        entry["key"]: (entry["count"], entry["sum"], entry["revision"], entry["window_start"]) for entry in entries
    }
    assert found == {f"k{number}": (number + 2, 10 * number, 1, START_MS) for number in range(20)}
