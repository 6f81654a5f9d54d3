"""The observer restores its changelog and the partials after it from the topics of a real broker."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

from helpers.headers import internal_headers
from helpers.kafka import Pipeline, Source
from skewless.kafka.consumer.topic_reader import ReadProgress
from skewless.stages.observer.restore import restore
from skewless.stages.observer.step import UNSAVED_KEY
from skewless.wire.changelog import WindowCheckpoint
from skewless.wire.columns import write_packed
from skewless.wire.headers import WATERMARK
from skewless.wire.partials import PARTIALS


def test_observer_restore_reads_the_changelog_and_unsaved_partials_without_those_that_retention_has_deleted(
    broker: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline(broker, tmp_path, Source(broker, 1), topics={"aggregator_partitions": 1})
    partials, changelog = pipeline.settings.topic("partials"), pipeline.settings.topic("observer-changelog")
    values = [write_packed(pa.table({"pane": [0], "key": [key], "worker": [1], "count": [1]})) for key in "abcd"]
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    producer.produce(changelog, b"rows", b"0/0/changes", partition=0)
    producer.produce(partials, values[0], partition=0, headers=list(internal_headers(PARTIALS, {})))
    producer.produce(partials, None, partition=0, headers=list(internal_headers(WATERMARK, {0: 5})))
    for value in values[1:]:
        producer.produce(partials, value, partition=0, headers=list(internal_headers(PARTIALS, {})))
    producer.flush()

    def restored(checkpoint: WindowCheckpoint | None) -> list[tuple[bytes, bytes]]:
        text = None if checkpoint is None else msgspec.json.encode(checkpoint).decode()
        return list(restore(pipeline.settings, ReadProgress(), 0, text))

    saved = [(b"0/0/changes", b"rows")]
    assert restored(None) == restored(WindowCheckpoint()) == saved
    assert restored(WindowCheckpoint(unsaved=(0, 4))) == [*saved, *((UNSAVED_KEY, value) for value in values[:3])]
    assert not caplog.messages
    log_start = TopicPartition(partials, 0, 3)
    pipeline.admin.delete_records([log_start])[log_start].result()
    assert restored(WindowCheckpoint(unsaved=(0, 4))) == [*saved, (UNSAVED_KEY, values[2])]
    assert restored(WindowCheckpoint(unsaved=(0, 2))) == saved
    assert [
        f"offsets 0 to {last} of topic {partials} were deleted" in message
        for last, message in zip((2, 1), caplog.messages, strict=True)
    ] == [True, True]
