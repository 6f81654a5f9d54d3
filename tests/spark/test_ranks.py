"""Batch, audit and `skewless results` know the ranks of the keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner
from confluent_kafka import Producer

from helpers.kafka import Pipeline, Source, zipf_records
from helpers.waiting import WAIT_S
from skewless.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANKS = 5


def write_rank(pipeline: Pipeline, row: dict[str, Any] | None, at: str) -> None:
    """Write a record of `top` as the ranker does; None writes a tombstone."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "enable.idempotence": True, "log_level": 2})
    producer.produce(pipeline.settings.topic("top"), None if row is None else json.dumps(row), at.encode(), 0)
    assert producer.flush(WAIT_S) == 0


def test_ranks_of_batch_equal_the_topic_and_audit_finds_planted_differences(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(broker, 2)
    source.send(zipf_records(6_000, 2, seed=4, keys=50))
    top = {"emit": "final", "top": {"n": RANKS, "by": "sum"}}
    pipeline = Pipeline(broker, tmp_path, source, aggregator=top, event_time={"allowed_lateness_s": 5})
    pipeline.drain()

    def run(*command: str) -> Any:
        return CliRunner().invoke(main, [command[0], "-f", str(pipeline.file), *command[1:]])

    shown = run("results", "--ranks", "--window", "all", "--json")
    ranks = {(row["window_start"], row["rank"]): row for row in map(json.loads, shown.stdout.splitlines())}
    assert len(ranks) > 3 * RANKS
    assert list(ranks) == sorted(ranks)
    some_key = ranks[min(ranks)]["key"]
    of_key = run("results", "--ranks", "--window", "all", "--key", some_key)
    assert len(of_key.stdout.splitlines()) == sum(row["key"] == some_key for row in ranks.values())

    out = tmp_path / "out"
    assert run("batch", "--out", str(out)).exit_code == 0
    rows = [row.asDict() for row in spark.read.parquet(str(out)).where("rank is not null").collect()]
    assert {(row["window_start"], row["rank"]): row | {"revision": 0} for row in rows} == ranks

    right = run("audit", "--json")
    assert right.exit_code == 0, right.output
    report = json.loads(right.stdout)["ranks"]
    assert (report["compared"], report["differences"], report["left_out"]) == (len(ranks), 0, {})

    (start, rank), row = next(iter(ranks.items()))
    write_rank(pipeline, row | {"key": "other", "revision": 1}, f"{start}/{rank}")
    write_rank(pipeline, None, f"{start}/{rank + 1}")
    wrong = run("audit", "--json", "--out", str(tmp_path / "audit"))
    assert wrong.exit_code == 1
    report = json.loads(wrong.stdout)
    assert (report["differences"], report["ranks"]["differences_by_kind"]) == (0, {"different": 1, "missing": 1})
    assert "the ranks of pipeline" in wrong.stderr
    parts = [part.read_text() for part in (tmp_path / "audit" / "rank-differences").glob("*.json")]
    assert sum(len(part.splitlines()) for part in parts) == 2
