"""Thousands of batches through each stage's real app, agent, executor and step do not leak memory blocks.

A consumer thread in memory replaces the real one, so that no broker limits the speed.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, cast

import faust.streams
import msgspec
import numpy as np
import pyarrow as pa
import pytest

from helpers.batches import encode_tuples
from helpers.headers import internal_headers
from helpers.messages import message
from helpers.stage_start import in_memory, sections_for
from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine import app as faust_app
from skewless.engine.app import App
from skewless.engine.executor import RestoredPartition
from skewless.engine.message_batch import MessageBatch
from skewless.engine.stage_runtime import StageRuntime
from skewless.service import build_runtime
from skewless.stages.agent import declare_agent
from skewless.stages.built_stage import build
from skewless.wire.columns import write_table
from skewless.wire.partials import PARTIALS
from skewless.wire.record import OutputRecord
from skewless.wire.top_candidates import encode_candidates
from skewless.wire.topic_partition import TopicPartition
from skewless.wire.tuples import TUPLES

STEP_MS = 1_000
"""Event time in ms between two batches. Windows open, close and expire during the run."""
CYCLE = 240
"""Batches between two measurements: a multiple of every window, so that each measurement has as many open windows."""
CYCLES = 4
"""Batches that fill bounded buffers: the newest samples of Faust's monitor, and retained closed windows."""
BLOCKS_PER_BATCH = 0.5
"""Growth at which the test fails. A leak is at least one block per batch or commit. NumPy's caches may add 0.2 at
first.
"""

PIPELINE: dict[str, Any] = {
    "name": "p",
    "source": {"topic": "s"},
    "join": {
        "left": {"topic": "l", "id": {"field": "key"}, "time": {"field": "time"}},
        "right": {"topic": "r", "id": {"field": "key"}, "time": {"field": "time"}},
        "apart_s": 1,
    },
    "splitter": {
        "format": "json",
        "key": {"field": "key"},
        "value": {"field": "value"},
        "time": {"field": "time"},
    },
    "worker_input": {"max_workers": 4},
    "router": {"workers": 4, "grouping": "even"},
    "topics": {"aggregator_partitions": 1},
    "aggregator": {"closed_window_retention_s": 60},
    "event_time": {"allowed_lateness_s": 0, "idle_timeout_s": None},
}
KEYS = [f"key-{number}" for number in range(20)]


def source_record(time: int) -> OutputRecord:
    return OutputRecord("any", msgspec.json.encode({"key": KEYS[time // STEP_MS % 20], "value": 1, "time": time}))


def join_record(time: int) -> OutputRecord:
    key = f"{time}" if time % 5_000 else "repeated"
    return OutputRecord("any", msgspec.json.encode({"key": key, "time": time}), key=key.encode())


def tuples_record(time: int) -> OutputRecord:
    keys = pa.array(KEYS).dictionary_encode()
    encoded = encode_tuples(keys, np.ones(20, np.int64), np.full(20, time, np.int64))
    return OutputRecord("any", encoded, headers=internal_headers(TUPLES, {0: time}))


def partials_record(time: int) -> OutputRecord:
    ones = np.ones(20, np.int64)
    pane = np.full(20, time // 15_000 * 15_000)
    table = pa.table({"pane": pane, "key": KEYS, "count": ones, "sum": ones, "worker": np.zeros(20, np.int32)})
    return OutputRecord("any", write_table(table), headers=internal_headers(PARTIALS, dict.fromkeys(range(4), time)))


def results_record(time: int) -> OutputRecord:
    window = time // 60_000 * 60_000
    key = KEYS[time // STEP_MS % 20]
    result = {"key": key, "window_start": window, "window_end": window + 60_000, "count": 1, "sum": 1, "revision": 0}
    return OutputRecord("any", msgspec.json.encode(result), key=f"{window}/{key}".encode())


def candidates_record(time: int) -> OutputRecord:
    window = time // 60_000 * 60_000
    rows = [{"key": key, "count": number + time, "sum": 1} for number, key in enumerate(KEYS)]
    candidates = pa.array([encode_candidates(time, rows)])
    table = pa.table({"pane": [window], "key": ["0"], "count": [20], "candidates": candidates})
    return OutputRecord("any", write_table(table), headers=internal_headers(PARTIALS, {0: time}))


def ranks_record(time: int) -> OutputRecord:
    result = msgspec.json.decode(results_record(time).value or b"") | {"rank": 1, "revision": time}
    return OutputRecord("any", msgspec.json.encode(result), key=f"{result['window_start']}/1".encode())


RECORDS: dict[str, Callable[[int], OutputRecord]] = {
    "left": join_record,
    "right": join_record,
    "source": source_record,
    "events": source_record,
    "tuples": tuples_record,
    "worker-input": tuples_record,
    "partials": partials_record,
    "aggregates": results_record,
    "top-candidates": candidates_record,
    "top": ranks_record,
}
"""Makes a record of a topic."""


def settings_of(stage: str) -> PipelineSettings:
    sections = sections_for(topology.stage(stage))
    aggregator = {**sections.get("aggregator", {}), **PIPELINE["aggregator"]}
    pipeline = {name: section for name, section in PIPELINE.items() if "enrich" not in sections or name != "join"}
    return PipelineSettings.model_validate(pipeline | sections | {"aggregator": aggregator})


class AssigningThread:
    """Replaces the consumer thread: it assigns partition 0 of each input, and the test delivers the batches."""

    def __init__(
        self, runtime: StageRuntime, *, stopped: Callable[[BaseException | None], None], **_others: Any
    ) -> None:
        self._executor = runtime.executor
        self._sources = [TopicPartition(topic, 0) for topic in runtime.topics]
        self._stopped = stopped

    def start(self) -> None:
        self._executor.assignment.begin(self._sources)
        self._executor.assign({source: RestoredPartition(0, None, ()) for source in self._sources})

    def stop(self, *, leave: bool) -> None:
        self._stopped(None)


def drop(outputs: Sequence[OutputRecord]) -> None:
    for _ in outputs:
        pass


@asynccontextmanager
async def running(stage: str) -> AsyncIterator[App]:
    settings = settings_of(stage)
    start = in_memory(stage, settings, 1)
    built = build(start)
    app = App(build_runtime(start, built, 0))
    app.executor.send = cast("Any", drop)
    declare_agent(app, built.processor)
    async with app.running(), asyncio.timeout(60):
        yield app
        await app.stop_thread()


async def process(app: App, record: Callable[[int], OutputRecord], numbers: range) -> None:
    """Deliver one batch per number and input, and commit after each number as the consumer thread does."""
    sources = [TopicPartition(topic, 0) for topic in app.runtime.topics]
    for number in numbers:
        # Python caches small integers, so offsets begin above them.
        output = record(number * STEP_MS)
        delivered = message(number + 1000, output.value, key=output.key, headers=output.headers)
        for source in sources:
            app.receive(MessageBatch(source, app.executor.assignment.generation, [delivered]))
        while app.executor.assignment.any_in_flight:  # noqa: ASYNC110 - the session sets no event per batch
            await asyncio.sleep(0)
        app.executor.end_commit(app.executor.begin_commit({}))


def allocated_blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.parametrize(
    ("stage", "stream"), [*((row.name, "cython") for row in topology.STAGES), ("worker", "python")]
)
async def test_stage_many_batches_leaves_no_blocks(stage: str, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faust_app, "ConsumerThread", AssigningThread)
    if stream == "python":
        monkeypatch.setattr(faust.streams, "_CStreamIterator", None)
    record, measured = RECORDS[topology.stage(stage).inputs[0]], []
    async with running(stage) as app:
        for cycle in range(CYCLES):
            await process(app, record, range(cycle * CYCLE, (cycle + 1) * CYCLE))
            measured.append(allocated_blocks())
        assert app.executor.statistics.batches.cumulative()[-1][1] == CYCLES * CYCLE * len(app.runtime.topics)
    growth = min(after - before for before, after in pairwise(measured[1:]))
    assert growth < BLOCKS_PER_BATCH * CYCLE, measured
