"""Record batches of the source that are damaged on the broker's disk."""

from __future__ import annotations

import json
import signal
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from helpers.kafka import START_MS, Pipeline, Source
from helpers.waiting import WAIT_S, until
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

HEADER_BYTES = 61
"""Header of a record batch: https://kafka.apache.org/documentation/#recordbatch."""
CRC_AT, CRC_FROM = 17, 21
BATCH = 10


def test_splitter_damaged_record_batch_ends_the_stage_until_skip_to_passes_it(tmp_path: Path) -> None:
    server = Broker(tmp_path / "broker").start()
    try:
        checksum, payload = (_pipeline(server, tmp_path, codec) for codec in ("none", "lz4"))
        _stop_cleanly(server)
        _damage(tmp_path / "broker", checksum.source.topic, valid_checksum=False)
        _damage(tmp_path / "broker", payload.source.topic, valid_checksum=True)
        server = Broker(tmp_path / "broker", port=server.port).start()
        for pipeline in (checksum, payload):
            _check(pipeline)
    finally:
        server.stop()


def _stop_cleanly(server: Broker) -> None:
    """Stop a broker, however long it takes. After a kill it would cut its log at the damaged batch."""
    assert server._child is not None
    server._child.send_signal(signal.SIGTERM)
    server._child.wait(WAIT_S)
    server.stop()


def _check(pipeline: Pipeline) -> None:
    code, log = _run(pipeline)
    assert code == 3, log
    assert f"topic {pipeline.source.topic} partition 0 offset {BATCH} cannot be decoded" in log
    assert "source.skip_to to {0: OFFSET}" in log
    assert len(log.splitlines()) < 20
    assert _committed(pipeline) == BATCH
    _skip_to(pipeline, 2 * BATCH)
    with pipeline.running() as supervisor:
        until(
            lambda: pipeline.tuples("tuples") == 2 * BATCH and _committed(pipeline) == 3 * BATCH,
            each=lambda: supervisor.poll(time.monotonic()),
        )


def _pipeline(server: Broker, folder: Path, codec: str) -> Pipeline:
    pipeline = Pipeline(
        server.bootstrap,
        folder,
        Source(server.bootstrap, 1),
        replicas={"router": 0, "worker": 0, "aggregator": 0, "observer": 0},
    )
    producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": codec, "linger.ms": 10_000})
    for first in range(0, 3 * BATCH, BATCH):
        for at in range(first, first + BATCH):
            entry = {"key": f"k{at}" * 20, "value": 1, "time": START_MS + at}
            producer.produce(pipeline.source.topic, json.dumps(entry).encode(), partition=0)
        assert producer.flush(WAIT_S) == 0
    return pipeline


def _damage(folder: Path, topic: str, *, valid_checksum: bool) -> None:
    """Change some bytes of the records of the second batch."""
    (log,) = folder.rglob(f"{topic}-0/00000000000000000000.log")
    data = bytearray(log.read_bytes())
    (first_length,) = struct.unpack_from(">i", data, 8)
    begin = 12 + first_length
    base, length = struct.unpack_from(">qi", data, begin)
    assert base == BATCH
    for at in range(begin + HEADER_BYTES + 20, begin + HEADER_BYTES + 40):
        data[at] ^= 0xFF
    if valid_checksum:
        struct.pack_into(">I", data, begin + CRC_AT, _crc32c(bytes(data[begin + CRC_FROM : begin + 12 + length])))
    log.write_bytes(data)


def _crc32c(data: bytes) -> int:
    """Return the checksum of a record batch (Castagnoli polynomial, reflected), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _run(pipeline: Pipeline) -> tuple[int, str]:
    """Run the splitter to its end; returns exit code and log."""
    log = pipeline.folder / "splitter.log"
    child = pipeline.start("splitter", log=log, armed=True)
    try:
        until(lambda: child.poll() is not None)
    finally:
        child_process.kill(child)
    return child.wait(), log.read_text()


def _skip_to(pipeline: Pipeline, offset: int) -> None:
    document = json.loads(pipeline.file.read_text())
    document["source"]["skip_to"] = {"0": offset}
    pipeline.file.write_text(json.dumps(document))


def _committed(pipeline: Pipeline) -> int:
    consumer = Consumer({"bootstrap.servers": pipeline.bootstrap, "group.id": f"{pipeline.name}-splitter"})
    (found,) = consumer.committed([TopicPartition(pipeline.source.topic, 0)], timeout=WAIT_S)
    consumer.close()
    return int(found.offset)
