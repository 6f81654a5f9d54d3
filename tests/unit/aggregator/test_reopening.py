"""Closed windows that are fetched for a batch, while partitions are lost and assigned again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from skewless.aggregator.agent import State, reopening
from skewless.aggregator.step import AggregatorRules, AggregatorStep
from skewless.algorithms.aggregates import columns_of, create
from skewless.asyncapi.written import WrittenBatch
from skewless.records import PARTIALS, Output, headers_of, write_table
from skewless.transport.batch import MessageBatch
from skewless.transport.session import Session, Taken
from support import facts_in, written


class Message:
    """As much of a confluent_kafka.Message as the step asks for: that class cannot be made by hand."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def offset(self) -> int:
        return 0

    def value(self) -> bytes | None:
        return self._output.value

    def leader_epoch(self) -> None:
        return None

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self._output.headers)


def deltas(count: int, mark: int) -> Output:
    ones = np.ones(1, np.int64)
    columns = {"pane": ones - 1, "key": ["a"], "count": ones * count, "worker": pa.array([0], pa.int32())}
    return Output("partials", write_table(pa.table(columns)), headers=headers_of(PARTIALS, {0: mark}))


def built() -> AggregatorStep:
    wanted = [create("count")]
    rules = AggregatorRules(wanted, columns_of(wanted), window_ms=60, keep_closed_ms=1000, updates=True, decimals=0)
    return AggregatorStep(rules, origins=1, topic="p.partials")


class World:
    """A partition with a window that was closed with one tuple, and again with a second one by another process."""

    def __init__(self) -> None:
        first = built()
        first.assign(0, None, ())
        list(first.process(WrittenBatch(0, [deltas(1, 100)]), 0))
        self.before = self.chunks(first)
        self.taken = Taken(1, first.position(0), [(key, b"") for key, _ in self.before])
        first.reopen(0, self.before)
        list(first.process(WrittenBatch(0, [deltas(1, 100)]), 0))
        self.after = [*self.before, *self.chunks(first)]
        self.taken_again = Taken(2, first.position(0), [(key, b"") for key, _ in self.after])
        self.step = built()
        self.session = Session(self.step)
        self.session.assign({0: self.taken})
        self.sent: list[Output] = []
        self.session.send = self.sent.extend

    @staticmethod
    def chunks(step: AggregatorStep) -> State:
        outputs = written(step.flush(0), "windows")
        return [(output.key, output.value) for output in outputs if output.key and output.value]

    def batch(self) -> MessageBatch:
        batch = MessageBatch(0, self.session.generation, [Message(deltas(1, 100))])
        assert self.session.hand(batch)
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


def test_batch_for_a_closed_window_waits_until_it_is_fetched(world: World) -> None:
    asyncio.run(world.process(world.batch(), lambda: world.before))
    assert world.session.failure is None
    assert world.counts() == [(2, 1)]


def test_window_fetched_before_the_partition_was_assigned_again_is_not_used(world: World) -> None:
    """The partition was with another process meanwhile, which has changed the window."""

    async def run() -> None:
        fetching, lost = threading.Event(), threading.Event()

        def read() -> State:
            fetching.set()
            assert lost.wait(30)
            return world.before

        processing = asyncio.create_task(world.process(world.batch(), read))
        assert await asyncio.to_thread(fetching.wait, 30)
        world.session.revoke([0])
        world.session.assign({0: world.taken_again})
        lost.set()
        await processing
        await world.process(world.batch(), lambda: world.after)

    asyncio.run(run())
    assert world.session.failure is None
    assert world.counts() == [(3, 2)]
