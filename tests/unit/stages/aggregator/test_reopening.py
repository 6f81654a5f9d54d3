"""Closed windows that are fetched for a batch, while partitions are lost and assigned again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from helpers.batches import facts_in, written
from helpers.engine import assign, at, batch_of, revoke
from skewless.aggregate_registry import find_aggregate
from skewless.algorithms.aggregates import columns_of
from skewless.algorithms.windowing.assigner import tumbling
from skewless.asyncapi.in_memory_batch import InMemoryBatch
from skewless.engine.executor import RestoredPartition, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.stages.aggregator.agent import State, reopening
from skewless.stages.aggregator.step import AggregatorRules, AggregatorStep
from skewless.wire.columns import write_table
from skewless.wire.headers import internal_headers
from skewless.wire.partials import PARTIALS
from skewless.wire.record import OutputRecord


class Message:
    """As much of a confluent_kafka.Message as the step asks for: that class cannot be made by hand."""

    def __init__(self, output: OutputRecord, offset: int) -> None:
        self._output = output
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._output.value

    def leader_epoch(self) -> None:
        return None

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self._output.headers)


def deltas(count: int, mark: int) -> OutputRecord:
    ones = np.ones(1, np.int64)
    columns = {"pane": ones - 1, "key": ["a"], "count": ones * count, "worker": pa.array([0], pa.int32())}
    return OutputRecord("partials", write_table(pa.table(columns)), headers=internal_headers(PARTIALS, {0: mark}))


def built() -> AggregatorStep:
    wanted = [find_aggregate("count")]
    rules = AggregatorRules(
        wanted, columns_of(wanted), windows=tumbling(60), closed_window_retention_ms=1000, updates=True, decimals=0
    )
    return AggregatorStep(rules, worker_partitions=1, topic="p.partials")


class World:
    """A partition with a window that was closed with one tuple, and again with a second one by another process."""

    def __init__(self) -> None:
        first = built()
        first.assign(0, None, ())
        list(first.process(InMemoryBatch(0, [deltas(1, 100)]), 0))
        self.before = self.chunks(first)
        self.taken = RestoredPartition(1, first.checkpoint(0), [(key, b"") for key, _ in self.before])
        first.reopen(0, self.before)
        list(first.process(InMemoryBatch(0, [deltas(1, 100)]), 0))
        self.after = [*self.before, *self.chunks(first)]
        self.taken_again = RestoredPartition(2, first.checkpoint(0), [(key, b"") for key, _ in self.after])
        self.step = built()
        self.session = StepExecutor(self.step)
        assign(self.session, {0: self.taken})
        self.sent: list[OutputRecord] = []
        self.session.send = self.sent.extend

    @staticmethod
    def chunks(step: AggregatorStep) -> State:
        outputs = written(step.flush(0), "aggregator-changelog")
        return [(output.key, output.value) for output in outputs if output.key and output.value]

    def batch(self) -> MessageBatch:
        batch = batch_of(self.session, [Message(deltas(1, 100), self.session.assignment[at(0)].delivered_offset)])
        assert self.session.deliver(batch)
        return batch

    async def process(self, batch: MessageBatch, read: Callable[[], State]) -> None:
        await self.session.process(batch, reopening(self.session, self.step, lambda _partition, _wanted: read()))

    def counts(self) -> list[tuple[int, int]]:
        """Count and revision of each result of the next flush."""
        facts = facts_in(written(self.step.flush(0), "aggregates"))
        return [(fact["count"], fact["revision"]) for fact in facts]


@pytest.fixture
def world() -> World:
    return World()


def test_reopening_batch_for_a_closed_window_waits_for_its_fetch(world: World) -> None:
    asyncio.run(world.process(world.batch(), lambda: world.before))
    assert world.session.failure is None
    assert world.counts() == [(2, 1)]


def test_reopening_window_fetched_before_a_reassignment_is_not_used(world: World) -> None:
    """The partition was with another process meanwhile, which has changed the window."""

    async def run() -> None:
        fetching, lost = threading.Event(), threading.Event()

        def read() -> State:
            fetching.set()
            assert lost.wait(30)
            return world.before

        processing = asyncio.create_task(world.process(world.batch(), read))
        assert await asyncio.to_thread(fetching.wait, 30)
        revoke(world.session, [0])
        assign(world.session, {0: world.taken_again})
        lost.set()
        await processing
        await world.process(world.batch(), lambda: world.after)

    asyncio.run(run())
    assert world.session.failure is None
    assert world.counts() == [(3, 2)]
