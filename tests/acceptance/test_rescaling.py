"""Every scalable stage is scaled from 1 to 4 processes and back while records flow; the results stay exact."""
# ruff: noqa: T201 - figures are shown with `-s`

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from helpers.kafka import STAGES, Feed, Pipeline, Source, differences, read, truth, zipf_records
from helpers.waiting import WAIT_S, until
from skewless import topology
from skewless.lab.local import child_process

pytestmark = pytest.mark.thorough

MOST = 1_000_000
"""Upper bound of the records, in case scaling never finishes."""
RATE = 1_000
SEED = 23
LATENESS_S = 20
PARTITIONS = 4
PROCESSES = 4
STOP_S = 120.0
LIMIT_S = 240.0
"""Deadline in s. Twelve processes start in this test, four of them at the same time, on few cores."""
SCALED = [stage for stage in STAGES if stage != "observer"]
"""The observer cannot be scaled: one process measures the whole pipeline."""


class Offsets:
    """Return the committed offset of each input partition of a stage."""

    def __init__(self, tested: Pipeline, stage: str) -> None:
        source = topology.stage(stage).input
        partitions = {"source": PARTITIONS, "tuples": PARTITIONS, "worker-input": 8, "partials": PARTITIONS}[source]
        self._places = [TopicPartition(tested.settings.topic(source), number) for number in range(partitions)]
        self._consumer = Consumer({"bootstrap.servers": tested.bootstrap, "group.id": f"{tested.name}-{stage}"})

    def read(self) -> list[int]:
        return [place.offset for place in self._consumer.committed(self._places, timeout=WAIT_S)]

    def close(self) -> None:
        self._consumer.close()


@contextlib.contextmanager
def scaled_up(tested: Pipeline, stage: str) -> Iterator[None]:
    """Run more processes of a stage, and stop them cleanly at the end of the block."""
    with contextlib.ExitStack() as stack:
        children = []
        for number in range(1, PROCESSES):
            child = tested.start(stage, number)
            stack.callback(child_process.stop, child)
            children.append(child)
        yield
        for child in children:
            child.send_signal(signal.SIGTERM)
        assert [child.wait(STOP_S) for child in children] == [0] * len(children)


def scale(tested: Pipeline, stage: str, look: Callable[[], None]) -> str:
    """Scale a stage to four processes and back to one. At each step all of its partitions must make progress."""
    with contextlib.closing(Offsets(tested, stage)) as offsets:

        def all_go_on() -> None:
            before = offsets.read()
            until(
                lambda: all(now > then for now, then in zip(offsets.read(), before, strict=True)),
                each=look,
                limit_s=LIMIT_S,
            )

        began = time.monotonic()
        with scaled_up(tested, stage):
            until(lambda: tested.shares(stage) == PROCESSES, each=look, limit_s=LIMIT_S)
            all_go_on()
            at_four = time.monotonic()
        until(lambda: tested.shares(stage) == 1, each=look, limit_s=LIMIT_S)
        all_go_on()
    back_s = time.monotonic() - at_four
    return f"{PROCESSES} {stage} processes at work after {at_four - began:.1f} s, 1 again {back_s:.1f} s later"


@pytest.mark.timeout(900)
def test_pipeline_each_stage_scaled_to_four_processes_and_back_gives_exact_results(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": LATENESS_S},
        topics={"aggregator_partitions": PARTITIONS},
        transport={"session_timeout_s": 30},
    )
    with Feed(source, zipf_records(MOST, PARTITIONS, SEED), rate=RATE) as feed, tested.running() as supervisor:

        def look() -> None:
            supervisor.poll(time.monotonic())
            time.sleep(0.1)  # The condition sends requests to the broker, so it is not evaluated continuously.

        for stage in SCALED:
            print(f"{scale(tested, stage, look)}, {feed.sent:,} records sent")
        feed.finish()
    tested.drain(limit_s=300)
    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    assert expected.tuples > 0
    assert differences(tested, expected) == []
