"""An audit finds no difference in a correct run, and finds every difference that a test adds."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from helpers.kafka import START_MS, Pipeline, Source, zipf_records
from helpers.recorded_runs import INVALID, PARTITIONS, TUPLES, WINDOW_MS, recorded
from helpers.waiting import WAIT_S, until
from skewless.algorithms.hashing import partition_of_keys
from skewless.cli.audit_scope import find
from skewless.cli.main import main
from skewless.errors import ConfigurationError, UnknownSchemaError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.operations.offset_range import committed_by_splitter
from skewless.parsing.validation import TOO_FAR_AHEAD
from skewless.spark import audit_job as job
from skewless.spark import batch_pipeline, kafka_options, kafka_source
from skewless.wire.columns import write_table
from skewless.wire.dead_letters import WINDOW_EXPIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATENESS = {"event_time": {"allowed_lateness_s": 5}}


@pytest.fixture(scope="module")
def runs(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Return an iterator that runs a pipeline to its end at each step."""
    return recorded(broker, tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def drained(runs: Iterator[Pipeline]) -> Pipeline:
    """Return the pipeline that writes a record per tuple."""
    return next(runs)


def audit(pipeline: Pipeline, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", "-f", str(pipeline.file), *arguments])


def entries(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return the last results, the largest first."""
    return sorted(pipeline.results()[0].values(), key=lambda entry: -entry["count"])


def write_result(pipeline: Pipeline, entry: dict[str, Any] | bytes | None, at: str) -> None:
    """Write a record of `aggregates` as the aggregator does, or any bytes; None writes a tombstone."""
    key = at.partition("/")[2]
    partition = int(partition_of_keys(pa.array([key]), pipeline.settings.topics.aggregator_partitions)[0])
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "enable.idempotence": True, "log_level": 2})
    value = json.dumps(entry) if isinstance(entry, dict) else entry
    producer.produce(pipeline.settings.topic("aggregates"), value, at.encode(), partition)
    assert producer.flush(WAIT_S) == 0


def test_audit_of_an_exact_run_has_no_difference_and_finds_planted_ones(
    drained: Pipeline, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = audit(drained, "--json")
    assert right.exit_code == 0, right.output
    report = json.loads(right.stdout)
    assert (report["records"], report["dead_letters"], report["settled"]) == (TUPLES + len(INVALID), 3, True)
    assert (report["compared"], report["differences"], report["left_out"]) == (len(entries(drained)), 0, {})
    assert report["late"] == drained.count("late") > 0
    assert report["dead_letters_by_reason"][TOO_FAR_AHEAD] == 1

    lost, doubled, changed, moved, gone, twice, unreadable = entries(drained)[:7]
    for entry in (lost, doubled, changed, moved, gone, twice, unreadable):
        entry["at"] = f"{entry['window_start']}/{entry['key']}"
        entry["revision"] += 1
    plants: dict[str, dict[str, Any] | None] = {
        lost["at"]: lost | {"count": lost["count"] - 1, "sum": lost["sum"] - 7},
        doubled["at"]: doubled | {"count": doubled["count"] + 1, "sum": doubled["sum"] + 7},
        changed["at"]: changed | {"sum": changed["sum"] + 1},
        moved["at"]: None,
        f"{moved['window_start'] + 60_000_000}/{moved['key']}": moved
        | {"window_start": moved["window_start"] + 60_000_000, "window_end": moved["window_end"] + 60_000_000},
        gone["at"]: None,
        twice["at"]: twice | {"revision": twice["revision"] - 1},
        "foreign": changed,  # no window in its key
    }
    for at, plant in plants.items():
        write_result(drained, plant and {name: plant[name] for name in plant if name != "at"}, at)
    for at in (unreadable["at"], "0/unreadable"):
        write_result(drained, b"", at)
    monkeypatch.chdir(tmp_path)
    failures = audit(drained, "--json", "--out", "audit-20:10")
    assert failures.exit_code == 1
    found = {f"{row['window_start']}/{row['key']}": row for row in json.loads(failures.stdout)["first_differences"]}
    assert {at: row["kind"] for at, row in found.items()} == dict.fromkeys(plants.keys() - {"foreign"}, "different") | {
        moved["at"]: "missing",
        gone["at"]: "missing",
        list(plants)[4]: "unexpected",
        twice["at"]: "duplicate",
        unreadable["at"]: "different",
        "0/unreadable": "unexpected",
        "None/None": "unexpected",
    }
    assert json.loads(found[lost["at"]]["expected"])["count"] == lost["count"]
    assert json.loads(found[lost["at"]]["found"])["count"] == lost["count"] - 1
    assert "differ in 10 places" in failures.stderr
    assert json.loads((tmp_path / "audit-20:10" / "audit.json").read_text())["differences"] == 10
    parts = [part.read_text() for part in (tmp_path / "audit-20:10" / "differences").glob("*.json")]
    assert sum(len(part.splitlines()) for part in parts) == 10
    write_result(drained, None, "foreign")  # no other test knows it


@pytest.mark.thorough
def test_audit_of_two_producers_with_jitter_and_the_default_settings_has_no_late_tuple(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    times = START_MS + 25 * np.arange(4_000) - np.random.default_rng(32).integers(0, 50, 4_000)
    rows = [(number % 2, at) for number, at in enumerate(times.tolist())]
    source = Source(broker, 2)
    source.send(
        (at // 10 % 2, json.dumps({"key": f"p{producer}", "value": 1, "time": at}).encode()) for producer, at in rows
    )
    pipeline = Pipeline(broker, tmp_path, source, aggregator={"window_s": 10, "emit": "final"}, worker={"pane_s": 5})
    pipeline.drain(limit_s=240)
    assert pipeline.count("late") == 0
    complete = Counter((at // 10_000 * 10_000, f"p{producer}") for producer, at in rows)
    assert {key: result["count"] for key, result in pipeline.results()[0].items()} == complete
    report = json.loads(audit(pipeline, "--json").stdout)
    assert (report["compared"], report["differences"], report["late"]) == (len(complete), 0, 0)


@pytest.mark.thorough
def test_audit_of_a_running_pipeline_compares_closed_windows(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    records = Source(broker, 1)
    rows = list(zipf_records(4_000, 1, seed=4, keys=50))
    records.send(rows)
    pipeline = Pipeline(broker, tmp_path, records, aggregator={"emit": "final"}, **LATENESS)
    with pipeline.running() as supervisor:
        until(lambda: pipeline.count("aggregates") > 200, each=lambda: supervisor.poll(time.monotonic()))
        done = audit(pipeline, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["compared"] >= 200
    assert report["left_out"]["windows that are not closed yet"] > 0


def read_offsets(pipeline: Pipeline) -> int:
    """Return the number of offsets that the splitter has committed."""
    try:
        committed = committed_by_splitter(OffsetReader(pipeline.settings.kafka), pipeline.settings)
    except ConfigurationError:  # none
        return 0
    return sum(sum(offsets.values()) for offsets in committed.values())


def has_processed(pipeline: Pipeline, records: int) -> bool:
    """Return whether all stages have processed all records that were sent."""
    return read_offsets(pipeline) >= records and find(OffsetReader(pipeline.settings.kafka), pipeline.settings).settled


@pytest.mark.thorough
def test_audit_of_a_stopped_pipeline_whose_updates_wait_has_no_difference(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The last updates of open windows wait for their interval, also when the pipeline stops."""
    source = Source(broker, 1)
    aggregator = {"emit": "updates", "emit_interval_s": 3_600, "window_s": 600}
    pipeline = Pipeline(broker, tmp_path, source, aggregator=aggregator, **LATENESS)
    for number in range(2):
        source.send((0, json.dumps({"key": f"k{key}", "value": 1, "time": START_MS}).encode()) for key in range(5))
        with pipeline.running() as supervisor:
            is_processed = partial(has_processed, pipeline, 5 * (number + 1))
            until(is_processed, each=lambda: supervisor.poll(time.monotonic()))
    done = audit(pipeline, "--json")
    assert done.exit_code == 1, "nothing is closed, so nothing is compared"
    report = json.loads(done.stdout)
    assert (report["settled"], report["compared"], report["differences"]) == (True, 0, 0)


@pytest.mark.thorough
def test_audit_after_a_bounded_run_leaves_out_windows_of_newer_records(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(broker, 1)
    source.send(zipf_records(500, 1, seed=4, keys=50))
    pipeline = Pipeline(broker, tmp_path, source, **LATENESS)
    pipeline.drain()
    source.send([(0, json.dumps({"key": "new", "value": 1, "time": START_MS + 10**9}).encode())])
    splitter = pipeline.start("splitter")
    until(lambda: read_offsets(pipeline) > 500)
    splitter.send_signal(signal.SIGTERM)
    splitter.wait(WAIT_S)
    done = audit(pipeline, "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["settled"], report["differences"]) == (0, False, 0), done.output
    assert report["left_out"]["windows that are not closed yet"] >= 1


@pytest.mark.thorough
def test_audit_with_since_leaves_out_earlier_windows(drained: Pipeline, spark: SparkSession) -> None:
    done = audit(drained, "--json", "--since", "1d")
    assert done.exit_code == 1, "nothing is left to compare"
    assert "that begins at or after --since 1d is closed yet" in done.stderr
    report = json.loads(done.stdout)
    assert report["compared"] == 0
    assert set(report["left_out"]) == {"windows before --since"}


def test_audit_of_a_pipeline_that_never_ran_asks_to_run_it(broker: str, tmp_path: Path) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1))
    done = audit(pipeline)
    assert (done.exit_code, "run the pipeline first" in done.stderr) == (2, True), done.output


def test_audit_of_records_that_may_be_valid_when_read_again_follows_the_dead_letters(
    drained: Pipeline, spark: SparkSession
) -> None:
    settings, unknown = drained.settings, f"schema 7 is {UnknownSchemaError.REASON}"
    topics = drained.source.topic, settings.topic("dead-letters")
    ranges = OffsetReader(settings.kafka).ranges
    records, letters = (kafka_options.read(spark, settings.kafka, {topic: ranges(topic)}) for topic in topics)
    own = headers_of(unknown, drained.source.topic)
    no_number = [(name, b"x" if name.endswith(("partition", "offset")) else value) for name, value in own]
    # The same letter twice, as after a crash with at_least_once, and one of another program.
    planted = [([*own, ("trace", b"1"), ("trace", b"2")], b""), (own, b""), (no_number, b"")]
    letters = letters.select("headers", "value")
    letters = letters.union(spark.createDataFrame(planted, letters.schema))
    refused = kafka_source.refused_of_source(letters, settings)
    assert Counter((row.source_partition, row.offset, row.reason) for row in refused.collect()) == {
        (0, 0, unknown): 2,
        (None, None, unknown): 1,
        (2, TUPLES // PARTITIONS, TOO_FAR_AHEAD): 1,
    }
    records = kafka_source.with_refused(kafka_source.of_source(records, settings), refused)
    answer = batch_pipeline.answer(records, batch_pipeline.read_plan(settings, None))
    answer.close()
    assert answer.invalid.items() >= {unknown: 1, TOO_FAR_AHEAD: 1}.items()


def headers_of(reason: str, topic: str) -> list[tuple[str, bytes]]:
    """Return the headers of a dead letter for the first record of a topic."""
    where = {"reason": reason, "topic": topic, "partition": "0", "offset": "0"}
    return [(f"{kafka_source.ERRORS}{name}", value.encode()) for name, value in where.items()]


def forget(pipeline: Pipeline, entry: dict[str, Any]) -> None:
    """Write a dead letter for a part of a window, as the aggregator does after the window has expired."""
    part = pa.table({"pane": [entry["window_start"]], "key": [entry["key"]], "count": [1]})
    headers = headers_of(WINDOW_EXPIRED, pipeline.settings.topic("partials"))
    producer = Producer({"bootstrap.servers": pipeline.bootstrap, "enable.idempotence": True, "log_level": 2})
    producer.produce(pipeline.settings.topic("dead-letters"), write_table(part), headers=headers, partition=0)
    assert producer.flush(WAIT_S) == 0


@pytest.mark.thorough
def test_audit_of_expired_or_deleted_results_reports_them_without_a_difference(
    drained: Pipeline, runs: Iterator[Pipeline], spark: SparkSession
) -> None:
    pipeline = next(runs)  # because other tests add differences to `drained`
    entry = entries(pipeline)[0]
    write_result(
        pipeline,
        entry | {"count": entry["count"] - 1, "revision": entry["revision"] + 1},
        f"{entry['window_start']}/{entry['key']}",
    )
    forget(pipeline, entry)
    done = audit(pipeline, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["left_out"] == {job.REFUSED: 1}

    topic, deleted = pipeline.source.topic, TUPLES // PARTITIONS // 10
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap, "log_level": 2})
    (gone,) = admin.delete_records([TopicPartition(topic, 0, deleted)]).values()
    gone.result(WAIT_S)
    done = audit(pipeline, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"partition 0 of {topic} begins at offset {deleted}: earlier records cannot be counted again" in done.stderr
    since = datetime.fromtimestamp((START_MS + 2 * WINDOW_MS) / 1000, UTC).isoformat()
    done = audit(pipeline, "--json", "--since", since)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["compared"] > 0
    assert json.loads(done.stdout)["left_out"].keys() <= {job.REFUSED, job.TOO_OLD}
