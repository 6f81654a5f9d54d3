"""The driver of a query of Spark: its source partitions between two micro-batches, and how it ends."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.state_layout import state_schema_of
from skewless.engine.start_checks import Input
from skewless.errors import UnreachableError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.spark import kafka_options, stream_job, stream_start
from skewless.spark.stream_job import StreamJob
from skewless.spark.stream_start import SourceState, StreamStart
from skewless.spark.stream_tasks import SourceProgress
from skewless.stages.splitter.checkpoint import Checkpoint
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

SOURCE = TopicPartition("orders", 0)
SETTINGS = PipelineSettings.model_validate(
    {
        "name": "shop",
        "source": {"topic": SOURCE.topic},
        "splitter": {"key": {"field": "key"}, "time": {"field": "time"}},
        "event_time": {"idle_timeout_s": 30},
    }
)


class Added:
    """Offsets of a topic of which nothing is committed, and whose first records were deleted."""

    def committed(self, _group: str, _topic: str) -> dict[int, CommittedOffset]:
        return {}

    def ranges(self, _topic: str) -> dict[int, tuple[int, int]]:
        return {0: (7, 9)}


class Growing:
    """Offsets of a topic that gets a record before each request."""

    end_offset = 0

    def __init__(self, _kafka: object) -> None:
        pass

    def end(self, _topic: str) -> dict[int, int]:
        self.end_offset += 1
        return {0: self.end_offset}


def job_of(monkeypatch: pytest.MonkeyPatch, settings: PipelineSettings, checkpoint: Checkpoint) -> StreamJob:
    """Return the driver of a query with one source partition, without a broker and without Spark."""
    monkeypatch.setattr(stream_job, "OffsetReader", Growing)
    monkeypatch.setattr(stream_job, "Admin", lambda _kafka: None)
    monkeypatch.setattr(stream_job, "has_records_after", lambda *_: True)
    monkeypatch.setattr(StreamJob, "_opened", lambda _job: None)
    sources = {SOURCE: SourceState(0, checkpoint)}
    start = StreamStart(settings, state_schema_of(settings), {}, {}, sources, "", {})
    nothing: Any = None
    return StreamJob(start, nothing, nothing)


def running_job_of(monkeypatch: pytest.MonkeyPatch, read_stream: Mock, partitions: int = 1) -> StreamJob:
    """Return a driver whose query can be started, and does nothing."""
    job, counts = job_of(monkeypatch, SETTINGS, Checkpoint()), {SOURCE.topic: partitions}
    parts = {"_spark": Mock(), "_producer": Mock(), "_check_first": Mock(), "_topic_ids": {SOURCE.topic: 1}}
    parts["_admin"] = SimpleNamespace(partition_counts=lambda: counts)
    for name, value in parts.items():
        monkeypatch.setattr(job, name, value)
    monkeypatch.setattr(kafka_options, "read_stream", read_stream)
    return job


@pytest.mark.parametrize(
    ("timed_records", "reads_all", "is_idle"), [(0, True, True), (1, True, False), (0, False, False)]
)
def test_stream_job_partition_that_gets_records_all_the_time_is_idle_without_those_with_a_time(
    monkeypatch: pytest.MonkeyPatch, timed_records: int, *, reads_all: bool, is_idle: bool
) -> None:
    now = 1_000_000
    monkeypatch.setattr(stream_job, "_now", lambda: now)
    job = job_of(monkeypatch, SETTINGS, Checkpoint(500))
    for _ in range(3):
        job._observe_idle(30_000, ended=False)
        offset = job._offsets.end(SOURCE.topic)[0] if reads_all else 0
        progress = SourceProgress(*SOURCE, records=1, timed_records=timed_records, max_time=500, next_offset=offset)
        job._observe([progress], {}, "query/0")
        now += 31_000
    job._observe_idle(30_000, ended=False)
    assert job._checkpoints()[SOURCE].idle == is_idle


@pytest.mark.parametrize("idle_timeout_s", [30, None])
def test_stream_job_restarted_without_idle_detection_makes_an_idle_partition_active(
    monkeypatch: pytest.MonkeyPatch, idle_timeout_s: float | None
) -> None:
    event_time = SETTINGS.event_time.model_copy(update={"idle_timeout_s": idle_timeout_s})
    settings = SETTINGS.model_copy(update={"event_time": event_time})
    job = job_of(monkeypatch, settings, Checkpoint(500, idle=True))
    assert job._checkpoints()[SOURCE].idle == (idle_timeout_s is not None)


def test_stream_job_source_partition_that_is_added_has_the_offset_at_which_the_query_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = job_of(monkeypatch, SETTINGS, Checkpoint())
    monkeypatch.setattr(job, "_admin", SimpleNamespace(partition_counts=lambda: {SOURCE.topic: 2}))
    job._topic_ids = {SOURCE.topic: 1}
    job._find_partitions({TopicPartition(SOURCE.topic, 2): 0})  # of a broker that knows one partition more
    assert [job._checkpoints()[TopicPartition(SOURCE.topic, number)] for number in (1, 2)] == 2 * [Checkpoint(start=0)]
    source, offsets = Input("p-splitter", SOURCE.topic, kind="public", state_schema=None), cast("OffsetReader", Added())
    assert stream_start._sources(offsets, source, None) == {SOURCE: SourceState(7, Checkpoint(start=7))}


@pytest.mark.parametrize(
    "error", [UnreachableError("no answer"), BrokenPipeError(errno.EPIPE, "Broken pipe"), PySparkException("lost")]
)
def test_stream_job_micro_batch_that_fails_while_the_query_is_stopped_ends_the_run_with_its_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    job, records = running_job_of(monkeypatch, Mock()), Mock(spec=DataFrame)
    monkeypatch.setattr(job, "_process", Mock(side_effect=error))
    with pytest.raises(type(error)) as raised, job.running("checkpoint", 1.0), pytest.raises(type(error)):
        job._run(records, 0)
    assert raised.value is error
    with pytest.raises(RuntimeError, match="the query is stopped"):
        job._run(records, 1)


def test_stream_job_partition_that_is_added_while_spark_starts_has_a_first_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_stream = Mock()
    with running_job_of(monkeypatch, read_stream, partitions=2).running("checkpoint", 1.0):
        assert read_stream.call_args.args[-1] == {SOURCE.topic: {0: 0, 1: 0}}
