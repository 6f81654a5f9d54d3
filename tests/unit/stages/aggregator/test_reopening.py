"""Closed windows that are read for a batch while partitions are revoked and assigned again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from helpers.aggregates import results
from helpers.batches import json_values_in, written
from helpers.engine import assign, at, batch_of, revoke
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from helpers.messages import message
from skewless.algorithms.aggregates import columns_of
from skewless.algorithms.windowing.assigner import tumbling
from skewless.engine.executor import RestoredPartition, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.stages.aggregator.builder import State, reopening
from skewless.stages.aggregator.step import AggregatorRules, AggregatorStep
from skewless.wire.columns import write_table
from skewless.wire.partials import PARTIALS
from skewless.wire.record import OutputRecord


def deltas(count: int, watermark: int) -> OutputRecord:
    ones = np.ones(1, np.int64)
    columns = {"pane": ones - 1, "key": ["a"], "count": ones * count, "worker": pa.array([0], pa.int32())}
    return OutputRecord("partials", write_table(pa.table(columns)), headers=internal_headers(PARTIALS, {0: watermark}))


def built() -> AggregatorStep:
    expected = results("count")
    rules = AggregatorRules(
        expected, columns_of(expected), windows=tumbling(60), closed_window_retention_ms=1000, updates=True
    )
    return AggregatorStep(rules, worker_partitions=1, topic="p.partials")


class ChaosContext:
    """A partition with a window that was closed with one tuple, and again with a second one by another process."""

    def __init__(self) -> None:
        first = built()
        first.assign(0, None, ())
        list(first.process(InMemoryBatch(0, [deltas(1, 100)]), 0))
        self.before = self.chunks(first)
        self.used = RestoredPartition(1, first.checkpoint(0), [(key, b"") for key, _ in self.before])
        first.reopen(0, self.before)
        list(first.process(InMemoryBatch(0, [deltas(1, 100)]), 0))
        self.after = [*self.before, *self.chunks(first)]
        self.restored_again = RestoredPartition(2, first.checkpoint(0), [(key, b"") for key, _ in self.after])
        self.step = built()
        self.executor = StepExecutor(self.step)
        assign(self.executor, {0: self.used})
        self.sent: list[OutputRecord] = []
        self.executor.send = self.sent.extend

    @staticmethod
    def chunks(step: AggregatorStep) -> State:
        outputs = written(step.flush(0), "aggregator-changelog")
        return [(output.key, output.value) for output in outputs if output.key and output.value]

    def batch(self) -> MessageBatch:
        record = deltas(1, 100)
        offset = self.executor.assignment[at(0)].delivered_offset
        batch = batch_of(self.executor, [message(offset, record.value, headers=record.headers)])
        assert self.executor.deliver(batch)
        return batch

    async def process(self, batch: MessageBatch, read: Callable[[], State]) -> None:
        await self.executor.process(batch, reopening(self.executor, self.step, lambda _partition, _wanted: read()))

    def counts(self) -> list[tuple[int, int]]:
        """Count and revision of each result of the next flush."""
        entries = json_values_in(written(self.step.flush(0), "aggregates"))
        return [(entry["count"], entry["revision"]) for entry in entries]


@pytest.fixture
def context() -> ChaosContext:
    return ChaosContext()


def test_reopening_batch_for_a_closed_window_waits_for_its_fetch(context: ChaosContext) -> None:
    asyncio.run(context.process(context.batch(), lambda: context.before))
    assert context.executor.failure is None
    assert context.counts() == [(2, 1)]


def test_reopening_window_fetched_before_a_reassignment_is_not_used(context: ChaosContext) -> None:
    """Meanwhile the partition was assigned to another process, which has changed the window."""

    async def run() -> None:
        fetching, lost = threading.Event(), threading.Event()

        def read() -> State:
            fetching.set()
            assert lost.wait(30)
            return context.before

        processing = asyncio.create_task(context.process(context.batch(), read))
        assert await asyncio.to_thread(fetching.wait, 30)
        revoke(context.executor, [0])
        assign(context.executor, {0: context.restored_again})
        lost.set()
        await processing
        await context.process(context.batch(), lambda: context.after)

    asyncio.run(run())
    assert context.executor.failure is None
    assert context.counts() == [(3, 2)]
