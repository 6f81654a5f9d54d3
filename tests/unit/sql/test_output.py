"""The sink's output on SQLite, with a consumer whose brokers do not answer."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BadRecordError, StoreError, TransactionAbortedError, UnavailableError
from skewless.kafka.consumer.group_progress import GroupProgress
from skewless.sql.dialects import database_of
from skewless.sql.output import SqlOutput
from skewless.sql.rows import row_id
from skewless.wire.topic_partition import CommittedOffset, TopicPartition

PARTITION = TopicPartition("p.aggregates", 0)


class Consumer:
    """A consumer whose brokers answer only while they are up."""

    def __init__(self) -> None:
        self.up = False

    def list_topics(self, **_: Any) -> ClusterMetadata:
        if not self.up:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        metadata = ClusterMetadata()
        metadata.cluster_id = "cluster"
        return metadata

    def commit(self, **_: Any) -> None:
        pass


def new_output(file: Path, **sink: Any) -> SqlOutput:
    settings = PipelineSettings.model_validate(
        {"name": "p", "source": {"topic": "t"}, "sink": {"url": f"sqlite://{file}", **sink}}
    )
    assert settings.sink is not None
    return SqlOutput(
        database_of(settings.sink, settings.sink_table()),
        pipeline="p",
        stage="sink",
        topics=[PARTITION.topic],
        create=True,
        progress=GroupProgress(),
    )


def test_committed_offsets_of_an_unknown_cluster_are_unavailable_and_commit_needs_no_broker(tmp_path: Path) -> None:
    output, consumer = new_output(tmp_path / "p.db"), Consumer()
    with contextlib.closing(output):
        output.attach(consumer)
        output.connect()
        with pytest.raises(UnavailableError, match="reading the id of the cluster"):
            output.committed_offsets([PARTITION])
        consumer.up = True
        assert output.committed_offsets([PARTITION]) == {}
        consumer.up = False
        output.commit({PARTITION: CommittedOffset(7, "", 0)})
    with contextlib.closing(sqlite3.connect(tmp_path / "p.db")) as connection:
        stored = connection.execute("SELECT cluster_id, next_offset FROM skewless_offsets").fetchall()
    assert stored == [("cluster", 7)]


def test_commit_that_has_waited_for_its_time_limit_is_not_repeated_before_the_next_poll(tmp_path: Path) -> None:
    output, consumer = new_output(tmp_path / "p.db", statement_timeout_s=0.1, lock_timeout_s=0.2), Consumer()
    consumer.up = True
    with contextlib.closing(output), contextlib.closing(sqlite3.connect(tmp_path / "p.db")) as other:
        output.attach(consumer)
        output.connect()
        assert output.committed_offsets([PARTITION]) == {}
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransactionAbortedError, match="database is locked"):
            output.commit({PARTITION: CommittedOffset(7, "", 0)})
        retries = {sample.labels: sample.value for sample in output.collect_metrics() if "retries" in sample.name}
        assert retries["lock_timeout",] == 1


def test_connect_file_that_cannot_be_opened_is_refused_with_the_remedy(tmp_path: Path) -> None:
    output = new_output(tmp_path / "missing" / "p.db")
    with pytest.raises(StoreError, match="unable to open database file; create its folder, let this user"):
        output.connect()


def test_connect_database_that_does_not_answer_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skewless.sql.output.FIRST_DELAY_S", 0.0)
    file = tmp_path / "p.db"
    output = new_output(file, lock_timeout_s=0.1)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for _ in range(2):
            with pytest.raises(UnavailableError, match="database is locked"):
                output.connect()
    assert caplog.messages == [f"waits for the database: {file}: database is locked"]


@pytest.mark.parametrize(
    "key", ["1_0/k", " 10/k", "10 /k", "+10/k", "010/k", "-0/k", "10.0/k", "9223372036854775808/k", "/k", "10"]
)
def test_row_id_of_a_key_that_no_result_has_is_refused(key: str) -> None:
    with pytest.raises(BadRecordError, match="its key is not window/key"):
        row_id(key.encode())
