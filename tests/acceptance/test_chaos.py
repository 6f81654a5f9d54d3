"""A short, seeded part of `make chaos`: under faults of every kind the results equal those of the batch."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from chaos.run import Plan, run
from helpers.kafka import START_MS, Pipeline, Source, zipf_records
from helpers.stage_hosts import stage_host
from helpers.waiting import WAIT_S, until

pytestmark = pytest.mark.thorough

RECORDS = 30_000
SECONDS = {"one broker": 20.0, "one of three brokers": 15.0}
FAULTS = {
    "one broker": (
        "kill",
        "point",
        "init",
        "abort",
        "error",
        "stop",
        "stop-point",
        "rebalance",
        "hold",
        "deaf",
        "ghost",
        "broker-kill",
        "broker-stop",
        "disk",
    ),
    "one of three brokers": ("broker-kill", "broker-restart", "broker-stop", "kill"),
}
SEEDS = {"one broker": 2356, "one of three brokers": 6}
"""The first faults with one broker are a full disk and a held network. Each lane draws its faults, so most kinds follow
in some seed of `make chaos` only."""
MODES = {"one broker": ("final", "open", "join"), "one of three brokers": ()}
"""Scenarios of these runs. One run is compared while it runs and after it is drained, the other only when drained."""
BROKERS = {"one of three brokers": 3}
PACE = 15.0
"""With a broker that is away for half of the time, some windows still close while the pipeline runs."""
PATIENCE = 20.0
"""Factor on the deadline of complete results. `make chaos` measures the delay; these tests only require completeness.
"""
LATENESS = {"allowed_lateness_s": 100, "idle_timeout_s": None}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("of", FAULTS)
def test_pipeline_under_faults_of_every_kind_gives_exact_results(tmp_path: Path, of: str) -> None:
    plan = Plan(
        seed=SEEDS[of],
        faults=FAULTS[of],
        records=RECORDS,
        seconds=SECONDS[of],
        modes=MODES[of],
        always=True,
        pace=PACE,
        patience=PATIENCE,
        brokers=BROKERS.get(of, 1),
        strict=False,
    )
    outcome = run(plan, tmp_path)
    journal = (tmp_path / "journal.log").read_text()
    assert outcome.failures == [], journal
    done = {name: count for name, count in outcome.counts.items() if name not in ("starts", "leaves", "not reached")}
    assert sum(done.values()) > 0, journal
    assert plan.scenario.drains or re.search(r" [1-9][\d,]* results below", journal), journal
    assert "not recovered" not in outcome.counts, journal


def test_splitter_source_topic_gains_partitions_between_two_runs_reads_each_record_once(
    broker: str, tmp_path: Path
) -> None:
    source = Source(broker, 2)
    source.send(zipf_records(5_000, 2, seed=3, keys=500))
    pipeline = Pipeline(broker, tmp_path, source, event_time=LATENESS)
    assert split(pipeline) == (0, "")
    grow(broker, source.topic, 4)
    assert split(pipeline) == (0, "")
    assert pipeline.tuples("tuples") + pipeline.count("late") == 5_000 + 4


def split(pipeline: Pipeline) -> tuple[int, str]:
    """Run the splitter to the end of the source; returns its exit code and the errors that it logged."""
    log = pipeline.folder / "splitter-0.log"
    arguments = ["run", "splitter", "--drain", "--file", str(pipeline.file)]
    code = stage_host().start("splitter-0", arguments, os.environ, log=log).wait(WAIT_S)
    return code, "".join(line for line in log.read_text().splitlines() if line.startswith("error: "))


def grow(broker: str, topic: str, partitions: int) -> None:
    """Add partitions to a topic, and write a record to each new one."""
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
    producer = Producer({"bootstrap.servers": broker, "topic.metadata.refresh.interval.ms": 200})
    until(lambda: len(producer.list_topics(topic, WAIT_S).topics[topic].partitions) == partitions)
    for partition in range(partitions):
        producer.produce(topic, json.dumps({"key": "new", "value": 1, "time": START_MS}), partition=partition)
    assert producer.flush(WAIT_S) == 0
