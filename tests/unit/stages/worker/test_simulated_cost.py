"""A simulated cost changes when tuples are processed, but not the recovery from a failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helpers.batches import ROW_FORMAT, rows_of
from helpers.engine import at
from helpers.headers import internal_headers
from helpers.messages import message
from helpers.stage_start import in_memory
from helpers.waiting import until_in_thread
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.stages.worker.builder import build
from skewless.stages.worker.settings import CostSettings
from skewless.stages.worker.simulated_cost import SimulatedCost
from skewless.wire.tuples import TUPLE


def batch(offset: int, headers: Any = None) -> MessageBatch:
    headers = headers or internal_headers(TUPLE, {})
    return MessageBatch(at(0), 1, [message(offset, b"{}", headers=headers)])


@pytest.mark.parametrize("where", ["spent", "processed"])
def test_simulated_cost_failed_batch_is_reported_and_later_batches_are_processed(where: str) -> None:
    done: list[int] = []
    failures: list[Exception] = []

    def fail_at(place: str, offset: int) -> None:
        if place == where and offset == 1:
            raise ZeroDivisionError

    async def process(part: MessageBatch) -> None:
        fail_at("processed", part.offsets[0])
        done.append(part.offsets[0])

    async def story() -> None:
        seen = iter(range(10))
        cost = SimulatedCost(
            CostSettings(cycle=1, process_duration_ms=0.01),
            process,
            lambda _: True,
            failures.append,
            lambda _, __: fail_at("spent", next(seen)),
        )
        cost.submit(batch(0))
        await until_in_thread(lambda: done == [0], every_s=0.001)
        cost.submit(batch(1))
        await until_in_thread(lambda: failures, every_s=0.001)
        cost.submit(batch(2))
        await until_in_thread(lambda: done == [0, 2], every_s=0.001)

    asyncio.run(story())
    assert [type(error) for error in failures] == [ZeroDivisionError]


def test_simulated_cost_header_without_a_value_costs_nothing_and_is_passed_on() -> None:
    done: list[int] = []

    async def process(part: MessageBatch) -> None:
        done.append(part.offsets[0])

    async def story() -> None:
        cost = SimulatedCost(
            CostSettings(cycle=1, process_duration_ms=0.01), process, lambda _: True, lambda _: None, lambda _, __: None
        )
        cost.submit(batch(0, [("schema", None)]))
        await until_in_thread(lambda: done == [0], every_s=0.001)

    asyncio.run(story())


def first_cost(*batches: MessageBatch, process_duration_ms: float, owned: int) -> list[tuple[int, float]]:
    """Return partition and seconds of the cost that is spent first, while only one partition is assigned."""
    spent: list[tuple[int, float]] = []

    async def process(part: MessageBatch) -> None:
        del part

    async def story() -> None:
        cost = SimulatedCost(
            CostSettings(cycle=1, process_duration_ms=process_duration_ms),
            process,
            lambda part: part.partition == owned,
            lambda _: None,
            lambda partition, seconds: spent.append((partition, seconds)),
        )
        for submitted in batches:
            cost.submit(submitted)
        await until_in_thread(lambda: spent, every_s=0.001)

    asyncio.run(story())
    return spent


def test_simulated_cost_of_a_row_is_that_of_one_tuple() -> None:
    (record,) = ROW_FORMAT.records("worker-input", 0, rows_of((10, "a", 900, 1), (10, "b", 100, 1)), ())
    rows = MessageBatch(at(0), 1, [message(0, record.value, headers=list(record.headers))])
    ((_, seconds),) = first_cost(rows, process_duration_ms=2, owned=0)
    assert seconds == pytest.approx(0.004)


def test_simulated_cost_of_a_revoked_partition_is_not_spent() -> None:
    current = MessageBatch(at(1), 1, [message(0, b"{}", headers=internal_headers(TUPLE, {}))])
    ((partition, _),) = first_cost(batch(0), current, process_duration_ms=0.01, owned=1)
    assert partition == 1


@pytest.mark.parametrize(("process_duration_ms", "pause_after_s"), [(0, 1.0), (1, 0.0)])
def test_worker_builder_only_a_cost_above_zero_pauses_full_partitions_at_once(
    process_duration_ms: int, pause_after_s: float
) -> None:
    cost = {"cycle": 100, "process_duration_ms": process_duration_ms}
    document = {"name": "p", "source": {"topic": "t"}, "worker": {"cost": cost}}
    start = in_memory("worker", PipelineSettings.model_validate(document), 2)
    assert build(start).pause_after_s == pause_after_s
