"""Records larger than usual pass through every stage of a real pipeline, or are reported; no stage stops."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from helpers.kafka import START_MS, Pipeline, Source, differences, read, truth
from helpers.stage_hosts import ended
from helpers.waiting import WAIT_S, until
from skewless.algorithms.record_size import RECORD_BYTES

KEYS, KEY_BYTES = 60_000, 350
"""Keys of 21 MB in one window, which is more than one record may contain."""
LARGE = 10_000_000
CUT = ("tuples", "worker-input", "partials", "aggregator-changelog", "observer-changelog")
HEADER = "__skewless.errors."


def limit(bootstrap: str, topic: str, size: int) -> None:
    """Raise the record size limit of a topic."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=WAIT_S)


def send_large(bootstrap: str, topic: str) -> bytes:
    """Write a record of 10 MB, and wait for its delivery."""
    value = row("x" * LARGE)
    options = {
        "bootstrap.servers": bootstrap,
        "message.max.bytes": 2 * LARGE,
        "compression.type": "zstd",
        "log_level": 2,
    }
    producer = Producer(options)
    producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    return value


def row(key: str) -> bytes:
    return json.dumps({"key": key, "value": 1, "time": START_MS}).encode()


def keys(count: int) -> Iterator[str]:
    return (f"{number:0{KEY_BYTES}d}" for number in range(count))


@pytest.mark.thorough
def test_pipeline_10_mb_record_and_60_000_long_keys_are_all_accounted_for(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    limit(broker, source.topic, 2 * LARGE)
    source.send((0, row(key)) for key in keys(KEYS))
    large = send_large(broker, source.topic)
    source.send((0, row(key)) for key in keys(100))
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        router={"grouping": "key", "workers": 1},
        worker_input={"max_workers": 1},
        topics={"aggregator_partitions": 1},
        # One commit contains all records. With shorter intervals the records could be small by chance.
        transport={"commit_interval_s": 4.0, "max_poll_records": 100_000, "transaction_timeout_s": 60.0},
    )
    # The limit of a topic that an earlier version has created: Kafka's default.
    limit(broker, pipeline.settings.topic("dead-letters"), 1_048_588)
    # A tick that begins and ends within one commit is not stored.
    with pipeline.running() as supervisor:
        until(lambda: pipeline.written("observer-changelog"), each=lambda: supervisor.poll(time.monotonic()))
    pipeline.drain()

    (dead_letter,) = pipeline.read("dead-letters")
    assert dead_letter.headers[HEADER + "reason"] == b"longer than 262144 bytes"
    assert int(dead_letter.headers[HEADER + "offset"]) == KEYS
    assert int(dead_letter.headers[HEADER + "value_bytes"]) == len(large)
    assert dead_letter.value is not None
    assert large.startswith(dead_letter.value)
    expected = truth(record for record in read(broker, source.topic) if record.offset != KEYS)
    assert len(expected.counts) == KEYS
    assert differences(pipeline, expected) == []
    largest = {topic: max(len(record.value or b"") for record in pipeline.read(topic)) for topic in CUT}
    assert {topic: size for topic, size in largest.items() if size > 1.01 * RECORD_BYTES} == {}
    assert sum(size > RECORD_BYTES / 3 for size in largest.values()) == len(CUT), largest


def test_splitter_topic_with_too_small_record_limit_ends_with_its_name(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    source.send((0, row(key)) for key in keys(5_000))
    pipeline = Pipeline(broker, tmp_path, source, topics={"aggregator_partitions": 1})
    limit(broker, pipeline.settings.topic("tuples"), 1_000)
    code, output = ended(pipeline.file, "run", "splitter")
    assert code == 3
    message = output.splitlines()[-1]
    for part in ("error: ", pipeline.settings.topic("tuples"), "max.message.bytes=8388608", "topics.options"):
        assert part in message
    assert "Traceback" not in output
