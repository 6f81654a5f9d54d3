"""`skewless stream` on a real broker: results, audit, restarts and refusals."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers.avro import encoded, record_of
from helpers.kafka import START_MS, Pipeline, Sent, Source, Truth, differences, read, truth, zipf_records
from helpers.schema_registry import RegistryServer
from helpers.tiers import thorough_except
from helpers.waiting import until
from skewless.cli.main import main
from skewless.errors import UnreachableError

CLICK = record_of("Click", key="string", value="int", time={"type": "long", "logicalType": "timestamp-millis"})
PARTITIONS = 3
LATENESS_S = 10
RECORDS = 3_000

pytestmark = pytest.mark.usefixtures("spark")


def stream(tested: Pipeline, *arguments: str, file: Path | None = None) -> Result:
    checkpoint = ["--checkpoint", str(tested.folder / "checkpoint")] if "--checkpoint" not in arguments else []
    return CliRunner().invoke(
        main, ["stream", "-f", str(file or tested.file), "--available-now", *checkpoint, *arguments]
    )


def audit(tested: Pipeline) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def expected_of(tested: Pipeline) -> Truth:
    return truth(read(tested.bootstrap, tested.source.topic), lateness_ms=LATENESS_S * 1000)


def closing(time_ms: int) -> list[Sent]:
    """Return a record for each partition after which all windows up to a time are closed."""
    value = b'{"key":"last","value":0,"time":%d}' % (time_ms + LATENESS_S * 1000)
    return [(partition, value) for partition in range(PARTITIONS)]


@pytest.mark.thorough
@pytest.mark.parametrize("emit", ["updates", "final"])
def test_stream_run_three_times_equals_a_plain_count_and_the_batch(broker: str, tmp_path: Path, emit: str) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"emit": emit, "aggregates": ["count", "sum"]})
    records = list(zipf_records(RECORDS, PARTITIONS, seed=5, keys=300))
    end = START_MS + 3_600_000
    for portion in (records[: RECORDS // 2], records[RECORDS // 2 :], closing(end)):
        source.send(portion)
        result = stream(tested)
        assert result.exit_code == 0, result.output
    assert f"{PARTITIONS:,} records read" in result.output
    expected, closed_to = expected_of(tested), None if emit == "updates" else end
    assert differences(tested, expected, ticks=False, closed_to=closed_to) == []
    ticks = [json.loads(record.value or b"") for record in tested.read("distribution")]
    assert sum(sum(tick["tuples_by_worker"]) for tick in ticks) == expected.tuples - PARTITIONS
    assert {(tick["grouping"], tick["workers"]) for tick in ticks} == {("source", PARTITIONS)}
    assert audit(tested)["compared"] > RECORDS / 10
    shown = CliRunner().invoke(main, ["results", "-f", str(tested.file), "--json"])
    assert shown.exit_code == 0, shown.output
    status = json.loads(CliRunner().invoke(main, ["status", "-f", str(tested.file), "--json"]).stdout)
    assert sum(stage["lag_records"] for stage in status["stages"]) == 0
    assert status["load"]["tick_start"] == max(tick["tick_start"] for tick in ticks)


def test_stream_with_a_cost_per_tuple_spreads_a_hot_key_over_the_workers(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    cost = {"cycle": 1, "process_duration_ms": 0.1}
    tested = Pipeline(broker, tmp_path, source, router={"workers": 4}, worker={"cost": cost})
    source.send(zipf_records(RECORDS, PARTITIONS, seed=5, keys=300, z=2.0))
    source.send(closing(START_MS + 3_600_000))
    result = stream(tested)
    assert result.exit_code == 0, result.output
    expected = expected_of(tested)
    assert differences(tested, expected, ticks=False) == []
    ticks = [json.loads(record.value or b"") for record in tested.read("distribution")]
    assert {(tick["grouping"], tick["workers"]) for tick in ticks} == {("even", 4)}
    assert ticks[-1]["run"]["tuples"] == expected.tuples
    assert ticks[-1]["run"]["max_over_avg"] < 1.2


def test_stream_with_a_pattern_leaves_out_a_topic_whose_name_only_contains_a_match(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, source={"topic": None, "topics": {"match": f"{source.topic}|none"}})
    source.send(zipf_records(300, PARTITIONS, seed=13, keys=30))
    for name in (f"old-{source.topic}", f"{source.topic}-old"):
        Source(broker, 1, name).send([(0, b"of another pipeline")])
    result = stream(tested)
    assert result.exit_code == 0, result.output
    assert differences(tested, expected_of(tested), ticks=False) == []


@pytest.mark.parametrize("moment", thorough_except(["before"], ["before", "after"]))
def test_stream_failed_around_its_commit_counts_once_after_a_restart(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the commit of the driver all partitions are committed. After it, Spark does not know of it."""
    from skewless.spark.stream_job import StreamJob

    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"aggregates": ["count", "sum"]})
    source.send(zipf_records(600, PARTITIONS, seed=6, keys=30))
    commit = StreamJob._commit

    def failing(job: StreamJob) -> None:
        if moment == "after":
            commit(job)
        raise UnreachableError("injected")

    with monkeypatch.context() as patched:
        patched.setattr(StreamJob, "_commit", failing)
        failed = stream(tested)
    assert (failed.exit_code, "injected" in failed.output) == (3, True), failed.output
    other = stream(tested, "--checkpoint", str(tmp_path / "other"))
    if moment == "before":
        assert other.exit_code == 2
        assert "is not complete" in other.output
    else:
        assert other.exit_code == 0, other.output
    source.send(zipf_records(300, PARTITIONS, seed=7, keys=30))
    again = stream(tested, *(["--checkpoint", str(tmp_path / "other")] if moment == "after" else []))
    assert again.exit_code == 0, again.output
    assert differences(tested, expected_of(tested), ticks=False) == []
    audit(tested)


@pytest.mark.thorough
@pytest.mark.parametrize("written", ["registry", "file"])
def test_stream_of_avro_equals_a_plain_count(
    broker: str, registry_server: RegistryServer, tmp_path: Path, written: str
) -> None:
    source = Source(broker, PARTITIONS)
    schema_id = registry_server.register(f"{source.topic}-value", CLICK) if written == "registry" else None
    file = tmp_path / "click.avsc"
    file.write_text(json.dumps(CLICK))
    avro = "avro" if schema_id else {"name": "avro", "schema": str(file)}
    registry = {"url": registry_server.url} if schema_id else None
    tested = Pipeline(broker, tmp_path, source, splitter={"format": avro}, registry=registry)
    records = [(at, value) for at, value in zipf_records(900, PARTITIONS, seed=4, keys=30) if value is not None]
    source.send((at, encoded(CLICK, json.loads(value), schema_id)) for at, value in records)
    source.send([(0, b"no record of Avro")])
    result = stream(tested)
    assert result.exit_code == 0, result.output
    assert "1 dead letters" in result.output
    plain = {at: [value for partition, value in records if partition == at] for at in range(PARTITIONS)}
    found = [record for record in read(broker, source.topic) if record.offset < len(plain[record.partition])]
    as_json = [replace(record, value=plain[record.partition][record.offset]) for record in found]
    assert differences(tested, truth(as_json, lateness_ms=LATENESS_S * 1000), ticks=False) == []
    audit(tested)


RULES = """
def checked(records):
    for record in records:
        yield {**record, "value": 10 * record["value"] // (record["value"] - 13)}
"""


@pytest.mark.thorough
def test_stream_record_on_which_a_task_fails_each_time_is_a_dead_letter(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "stream_rules.py").write_text(RULES)
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, splitter={"python": "stream_rules:checked"})
    source.send(zipf_records(900, PARTITIONS, seed=12, keys=30))
    results = [stream(tested), stream(tested)]
    assert [result.exit_code for result in results] == [0, 0], [result.output for result in results]
    assert f"{900:,} records read" in results[0].output
    assert "\n0 records read" in results[1].output
    failing = [record for record in read(broker, source.topic) if json.loads(record.value or b"")["value"] == 13]
    found = {(record.partition, record.offset) for record in failing}
    headers = [record.headers for record in tested.read("dead-letters")]
    assert len(found) == len(headers) > 0
    assert {headers_of["__skewless.errors.reason"].partition(b" (")[0] for headers_of in headers} == {
        b"splitter.python raised ZeroDivisionError"
    }
    assert audit(tested)["records"] == 900


def test_stream_with_another_state_or_checkpoint_or_engine_is_refused(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested, other = (Pipeline(broker, tmp_path, source) for _ in range(2))
    source.send(zipf_records(300, PARTITIONS, seed=8, keys=30))
    assert stream(tested).exit_code == 0
    refused = {
        "aggregator.window_s: is 120.0, was 60.0": stream(tested, file=tested.with_section("aggregator", window_s=120)),
        "aggregator.aggregates: needs": stream(tested, file=tested.with_section("aggregator", aggregates=["max"])),
        "splitter.key: is not what it was": stream(tested, file=tested.with_section("splitter", key={"field": "time"})),
        "that of another pipeline": stream(other, "--checkpoint", str(tested.folder / "checkpoint")),
    }
    source.send(zipf_records(300, PARTITIONS, seed=9, keys=30))
    refused["that of another pipeline"] = stream(other, "--checkpoint", str(tested.folder / "checkpoint"))
    for reason, result in refused.items():
        assert (result.exit_code, reason in result.output) == (2, True), result.output
    stage = CliRunner().invoke(main, ["run", "splitter", "-f", str(tested.file), "--drain"])
    assert stage.exit_code == 2, stage.output
    assert "pipeline: is run by the stages, was run by `skewless stream` (its --hand-back" in stage.output


@pytest.mark.thorough
def test_stream_while_stages_run_is_refused(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, transport={"session_timeout_s": 60})
    # The query waits for a short session. The stages have a long one, so they stay members when they are late.
    impatient = tested.with_section("transport", session_timeout_s=1)
    with tested.running() as supervisor:
        until(lambda: tested.shares("splitter") == 1, each=lambda: supervisor.poll(time.monotonic()))
        result = stream(tested, file=impatient)
    assert (result.exit_code, "splitter-0" in result.output) == (3, True), result.output
