"""Tests of the first offsets of a pipeline: resolved once, and committed before the first record is read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from helpers.kafka import START_MS, Pipeline, Record, Source
from helpers.waiting import WAIT_S, until
from skewless.cli import audit_scope
from skewless.config.stage_start import StageStart
from skewless.config.state_layout import state_schema_of
from skewless.engine.first_offsets import commit_first_offsets
from skewless.engine.start_checks import Input, OffsetsLostError
from skewless.errors import ConfigurationError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.operations.offset_range import START, offset_ranges, pipeline_starts
from skewless.stages.splitter.checkpoint import first_checkpoint
from skewless.topology import stage

pytestmark = pytest.mark.thorough

PARTITIONS = 2


def send(source: Source, first: int, count: int) -> None:
    """Write records of one key, one second apart, to all partitions."""
    source.send_complete(
        Record(i % PARTITIONS, 0, START_MS + i * 1000, b"k", None, {}) for i in range(first, first + count)
    )


def pipeline_of(broker: str, folder: Path, source: Source, start: Any) -> Pipeline:
    return Pipeline(broker, folder, source, splitter=None, source={"start": start})


def commit_first(pipeline: Pipeline) -> None:
    """Do what a splitter does before it joins its group."""
    settings = pipeline.settings
    group_input = Input(
        settings.group("splitter"), settings.topic("source"), kind="user", state_schema=state_schema_of(settings)
    )
    written = StageStart(stage("splitter"), settings, {}).prior_output()
    commit_first_offsets(
        OffsetReader(settings.kafka), [group_input], settings.aggregated.start, first_checkpoint, written
    )


def counted(pipeline: Pipeline) -> int:
    return sum(fact["count"] for fact in pipeline.results()[0].values())


@pytest.mark.parametrize("start", ["latest", START_MS + 100_000], ids=["latest", "time"])
def test_pipeline_that_crashes_before_its_first_record_starts_where_it_first_did(
    start: Any, broker: str, tmp_path: Path
) -> None:
    source = Source(broker, PARTITIONS)
    send(source, 0, 100)
    pipeline = pipeline_of(broker, tmp_path, source, start)
    reader = OffsetReader(pipeline.settings.kafka)
    assert offset_ranges(reader, pipeline.settings, START, "latest", topic=source.topic) == {0: (50, 50), 1: (50, 50)}
    commit_first(pipeline)  # and then the process is killed
    send(source, 100, 40)
    commit_first(pipeline)
    assert pipeline_starts(reader, pipeline.settings, source.topic) == {0: 50, 1: 50}
    pipeline.drain()
    assert counted(pipeline) == 40
    assert pipeline_starts(reader, pipeline.settings, source.topic) == {0: 50, 1: 50}, "each checkpoint keeps it"
    assert offset_ranges(reader, pipeline.settings, START, "committed", topic=source.topic) == {
        0: (50, 70),
        1: (50, 70),
    }


def test_pipeline_that_skips_its_first_records_starts_there_for_all_commands(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    send(source, 0, 100)
    pipeline = Pipeline(broker, tmp_path, source, splitter=None, source={"skip_to": {"0": 30}})
    pipeline.drain()
    assert counted(pipeline) == 70
    reader = OffsetReader(pipeline.settings.kafka)
    assert pipeline_starts(reader, pipeline.settings, source.topic) == {0: 30, 1: 0}
    assert offset_ranges(reader, pipeline.settings, START, "committed", topic=source.topic) == {
        0: (30, 50),
        1: (0, 50),
    }
    with pytest.raises(ConfigurationError, match=r"^--starting-offsets: 40 is after 20 of --ending-offsets in partiti"):
        offset_ranges(reader, pipeline.settings, '{"1": 40}', '{"1": 20}', topic=source.topic)


def test_pipeline_whose_source_had_lost_records_before_is_audited_from_its_first_record(
    broker: str, tmp_path: Path
) -> None:
    source = Source(broker, PARTITIONS)
    send(source, 0, 100)
    pipeline = Pipeline(broker, tmp_path, source, splitter=None)

    def delete(offsets: dict[int, int]) -> None:
        request = [TopicPartition(source.topic, partition, offset) for partition, offset in offsets.items()]
        for future in pipeline.admin.delete_records(request).values():
            future.result(WAIT_S)

    delete({0: 20, 1: 50})  # partition 1 is empty
    pipeline.drain()
    assert counted(pipeline) == 30
    scope = audit_scope.find(OffsetReader(pipeline.settings.kafka), pipeline.settings)
    assert (scope.source_ranges, scope.truncated) == ({source.topic: {0: (20, 50), 1: (50, 50)}}, [])
    send(source, 100, 40)
    pipeline.drain()
    scope = audit_scope.find(OffsetReader(pipeline.settings.kafka), pipeline.settings)
    assert (scope.source_ranges, scope.truncated) == ({source.topic: {0: (20, 70), 1: (50, 70)}}, [])
    delete({0: 21, 1: 51})
    scope = audit_scope.find(OffsetReader(pipeline.settings.kafka), pipeline.settings)
    assert {(each.partition, each.first) for each in scope.truncated} == {(0, 21), (1, 51)}


def test_pipeline_that_skips_to_what_its_source_does_not_have_ends_with_2(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    send(source, 0, 100)
    pipeline = Pipeline(broker, tmp_path, source, splitter=None, source={"skip_to": {"1": 51}})
    log = pipeline.folder / "splitter.log"
    assert pipeline.start("splitter", log=log).wait(WAIT_S) == 2
    assert "source.skip_to.1: 51 is after 50, the partition's end" in log.read_text()
    assert OffsetReader(pipeline.settings.kafka).committed(pipeline.settings.group("splitter"), source.topic) == {}


def test_splitter_killed_in_its_first_transaction_starts_where_it_first_did(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    send(source, 0, 100)
    pipeline = pipeline_of(broker, tmp_path, source, "latest")
    reader = OffsetReader(pipeline.settings.kafka)
    killed: list[str] = []
    pipeline.arm("splitter-0", "written", "kill", topic=pipeline.settings.topic("tuples"))
    with pipeline.running(armed=True) as supervisor:

        def look() -> None:
            killed.extend(event.name for event in supervisor.poll(time.monotonic()) if "was killed" in event.detail)

        until(lambda: pipeline_starts(reader, pipeline.settings, source.topic), each=look)
        send(source, 100, 40)
        until(lambda: killed, each=look)
        send(source, 140, 10)
    pipeline.drain(limit_s=300)
    assert killed == ["splitter-0"]
    assert pipeline.aborted("tuples") > 0
    assert counted(pipeline) == 50
    assert pipeline_starts(reader, pipeline.settings, source.topic) == {0: 50, 1: 50}


def test_pipeline_whose_offsets_are_lost_does_not_start_again_at_the_latest_record(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    send(source, 0, 10)
    pipeline = pipeline_of(broker, tmp_path, source, START_MS)
    pipeline.drain()
    assert counted(pipeline) == 10
    admin = AdminClient({"bootstrap.servers": broker, "log_level": 2})
    group = pipeline.settings.group("splitter")
    # The last member stays in its group until its session expires.
    until(lambda: not admin.describe_consumer_groups([group])[group].result(WAIT_S).members)
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    with pytest.raises(OffsetsLostError, match="the offsets were deleted, or expired"):
        commit_first(pipeline)
