"""Splitters with local windows on a real broker: restarts, retention, changed settings, and records that are gone."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from helpers.kafka import BASE, START_MS, Pipeline, Record, Sent, Source, differences, read, truth
from helpers.stage_start import in_memory
from helpers.waiting import until
from skewless.cli import audit_scope
from skewless.errors import BrokerError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local import child_process
from skewless.lab.local.supervisor import Supervisor
from skewless.stages.built_stage import build
from skewless.stages.splitter.checkpoint import Held, decode_checkpoint, encode_checkpoint
from skewless.wire.topic_partition import TopicPartition as SourcePartition

WINDOW_S = 600
"""Long, so that no partition is silent for so long before a test has stopped its pipeline."""


def pipeline_of(
    broker: str,
    folder: Path,
    source: Source,
    window_s: float,
    late_rule: str = "window_end",
    **parts: Mapping[str, Any],
) -> Pipeline:
    splitter = BASE["splitter"] | {"local": {"mode": "windows", "window_s": window_s}}
    transport = {"commit_interval_s": 0.3, "session_timeout_s": 3}
    event_time = {"allowed_lateness_s": 0, "late_rule": late_rule}
    return Pipeline(broker, folder, source, splitter=splitter, transport=transport, event_time=event_time, **parts)


def entries(partition: int, first_s: float, count: int, every_ms: int = 100) -> Iterator[Sent]:
    """Make records of ten keys."""
    for number in range(count):
        time_ms = START_MS + round(first_s * 1000) + every_ms * number
        yield partition, json.dumps({"key": f"k{number % 10}", "value": number, "time": time_ms}).encode()


def checkpoints(pipeline: Pipeline) -> Mapping[int, tuple[int, Held | None]]:
    """Return the committed offset of each source partition, and what is held of it."""
    group, topic = pipeline.settings.group("splitter"), pipeline.settings.topic("source")
    committed = OffsetReader(pipeline.settings.kafka).committed(group, topic)
    return {
        partition: (position.offset, decode_checkpoint(position.checkpoint).held)
        for partition, position in committed.items()
    }


def look_after(supervisor: Supervisor) -> None:
    supervisor.poll(time.monotonic())


@contextlib.contextmanager
def changed(pipeline: Pipeline, section: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Change the file of a pipeline for the block."""
    text = pipeline.file.read_text()
    document = json.loads(text)
    document[section] = {**document[section], **settings}
    pipeline.file.write_text(json.dumps(document))
    yield
    pipeline.file.write_text(text)


def run_splitter(pipeline: Pipeline) -> tuple[int, str]:
    """Run a splitter that is expected to end; returns exit code and log."""
    log = pipeline.folder / f"splitter-{time.monotonic_ns()}.log"
    child = pipeline.start("splitter", log=log, armed=True)
    try:
        until(lambda: child.poll() is not None)
    finally:
        child_process.kill(child)
    return child.wait(), log.read_text()


def delete_before(pipeline: Pipeline, partition: int, offset: int) -> None:
    log_start = TopicPartition(pipeline.source.topic, partition, offset)
    pipeline.admin.delete_records([log_start])[log_start].result()


@pytest.mark.thorough
def test_splitter_silent_partition_leaves_nothing_that_retention_could_take(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    pipeline = pipeline_of(broker, tmp_path, source, window_s=1)
    written: list[Record] = []
    clock = iter(range(10_000))

    def step() -> None:
        """Advance partition 0, so that only partition 1 is silent."""
        look_after(supervisor)
        source.send(entries(0, next(clock) * 0.5, 5))

    with pipeline.running() as supervisor:
        source.send(entries(1, 0, 37))
        until(lambda: checkpoints(pipeline).get(1, (0, None)) == (37, None), each=step, every_s=0.1)
        until(lambda: checkpoints(pipeline)[0][1] is not None, each=step, every_s=0.1)
    written = list(read(broker, source.topic))
    delete_before(pipeline, 1, 37)
    source.send(entries(1, 4, 20))
    written += [record for record in read(broker, source.topic) if record.partition == 1]
    pipeline.drain()
    assert differences(pipeline, truth(written, lateness_ms=0)) == []


@pytest.fixture(scope="module")
def stopped(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Return a pipeline that was stopped with held tuples: those after 600 s of partition 0, all of partition 1."""
    source = Source(broker, 2)
    # With this rule, a state schema that version 0.2 reads has no digests of the settings of the splitter.
    long: dict[str, Any] = {"aggregator": {"window_s": WINDOW_S}, "observer": {"tick_s": WINDOW_S}}
    pipeline = pipeline_of(broker, tmp_path_factory.mktemp("stopped"), source, WINDOW_S, "event_time", **long)
    with pipeline.running() as supervisor:
        # The partitions are silent from the last record on, so everything starts before.
        stages = ("splitter", "router", "worker")
        until(lambda: all(map(pipeline.shares, stages)), each=lambda: look_after(supervisor))
        source.send([*entries(0, 0, 200, every_ms=4_000), *entries(1, 0, 100, every_ms=4_000)])

        def is_held() -> bool:
            return [(offset, held and held.tuples) for offset, held in checkpoints(pipeline).values()] == [
                (200, 50),
                (100, 100),
            ]

        until(is_held, each=lambda: look_after(supervisor))
        until(lambda: pipeline.written("partials") > 0, each=lambda: look_after(supervisor))
    return pipeline


@pytest.mark.thorough
def test_audit_of_a_pipeline_with_held_tuples_is_not_settled(stopped: Pipeline) -> None:
    assert not audit_scope.find(OffsetReader(stopped.settings.kafka), stopped.settings).settled


def test_splitter_held_tuples_that_were_compacted_are_counted(stopped: Pipeline) -> None:
    committed = OffsetReader(stopped.settings.kafka).committed(stopped.settings.group("splitter"), stopped.source.topic)
    checkpoint = decode_checkpoint(committed[0].checkpoint)
    assert checkpoint.held is not None
    more = checkpoint._replace(held=checkpoint.held._replace(tuples=51))
    with pytest.raises(
        BrokerError, match=r"has 50 of the 51 tuples .*, at offsets 150 to 199: .* deleted or compacted"
    ):
        build(in_memory("splitter", stopped.settings, 2)).restore(
            {SourcePartition(stopped.source.topic, 0): encode_checkpoint(more)}
        )


def test_splitter_other_parsing_while_tuples_are_held_is_refused_by_name(stopped: Pipeline) -> None:
    other = BASE["splitter"] | {"local": {"mode": "buffer"}, "key": {"field": "key", "lowercase": True}}
    before = checkpoints(stopped)
    with changed(stopped, "splitter", other):
        code, log = run_splitter(stopped)
    assert code == 2
    assert "splitter: the settings of keys, values, times, conditions or limits have changed, while" in log
    assert "Start once with the previous settings and splitter.local.mode: buffer" in log
    assert checkpoints(stopped) == before


@pytest.mark.thorough
def test_splitter_held_records_that_were_deleted_are_named_and_can_be_skipped(stopped: Pipeline) -> None:
    _, held = checkpoints(stopped)[0]
    assert (held and held.offset, held and held.end) == (150, 200)
    expected = list(read(stopped.bootstrap, stopped.source.topic))
    delete_before(stopped, 0, 160)
    code, log = run_splitter(stopped)
    assert code == 3
    assert f"records of topic {stopped.source.topic} partition 0 were deleted while 50 of their tuples waited" in log
    assert "the first of them has offset 150, log start offset is 160. The tuples of 10 offsets are lost" in log
    assert "set source.skip_to to {0: 160} to continue without these tuples" in log
    with changed(stopped, "source", {"skip_to": {"0": 160}}):
        stopped.drain()
    log = (stopped.folder / "splitter-0.log").read_text()
    assert "skipped 10 tuples of" in log
    assert "read 40 records again, which have 40 held tuples" in log
    left = [record for record in expected if record.partition == 1 or not 150 <= record.offset < 160]
    assert differences(stopped, truth(left, lateness_ms=0, window_ms=1_000 * WINDOW_S, by_window=False)) == []
