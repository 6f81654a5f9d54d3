"""A group that is stopped, and what it finds when it comes back: its positions, none, or those of other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from integration.transport.harness import Copy, Stand, failure_of, running, started, until
from skewless.errors import BrokerError, ConfigurationError
from skewless.records import PARTIALS, PROGRESS, Batch, Output, headers_of
from skewless.shape import Shape
from skewless.transport.resumption import holds_results

RECORDS = 200
SHAPE = Shape(window_ms=60_000, tick_ms=60_000, columns="count", decimals=0)


@pytest.fixture
async def copied(broker: str) -> Stand:
    """Let a stage copy its input, and stop it."""
    stand = Stand(broker)
    stand.fill(RECORDS)
    async with running(stand.wiring(Schematic(), shape=SHAPE)):
        await until(lambda: stand.count() == RECORDS)
    return stand


async def forget(stand: Stand) -> None:
    """Delete the group's offsets, as the broker does when they have expired."""
    await until(lambda: stand.members() == [])
    admin = AdminClient({"bootstrap.servers": stand.bootstrap})
    group = f"{stand.prefix}-copy"
    admin.delete_consumer_groups([group])[group].result(20)


def finder(stand: Stand) -> Callable[[], str | None]:
    return lambda: "topic out" if holds_results(stand.kafka, stand.topic("out")) else None


class Schematic(Copy):
    """Copies with the headers of a stage."""

    def process(self, batch: Batch, now: int) -> Iterator[Output]:
        for output in super().process(batch, now):
            yield replace(output, headers=headers_of(PARTIALS, {}))


@pytest.mark.parametrize("evidence", ["results", "state"])
async def test_group_without_positions_does_not_begin_again_on_top_of_what_it_wrote(
    copied: Stand, evidence: str
) -> None:
    await forget(copied)
    found: dict[str, Any] = (
        {"holds_results": finder(copied)}
        if evidence == "results"
        else {"restore": lambda positions: {min(positions): [(b"0/0", b"chunk")]}}
    )
    async with started(copied.wiring(Schematic(), shape=SHAPE, **found)) as app:
        failure = await failure_of(app)
    assert isinstance(failure, BrokerError)
    written = "topic out" if evidence == "results" else "its changelog"
    assert f"has no position in any partition of topic {copied.topic('in')}, but has written to {written}" in str(
        failure
    )
    assert "another name" in str(failure)
    assert copied.count() == RECORDS


async def test_settings_that_changed_over_existing_positions_are_named(copied: Stand) -> None:
    wider = Shape(window_ms=120_000, tick_ms=60_000, columns="count", decimals=0)
    async with started(copied.wiring(Schematic(), shape=wider)) as app:
        failure = await failure_of(app)
    assert isinstance(failure, ConfigurationError)
    assert "aggregator.window_s: is 120.0, was 60.0" in str(failure)


async def test_group_goes_on_from_positions_with_and_without_a_shape(broker: str) -> None:
    stand = Stand(broker)
    for shape in (None, SHAPE, SHAPE):
        before = stand.count()
        stand.fill(RECORDS, start=before)
        step = Schematic()
        async with running(stand.wiring(step, shape=shape, holds_results=finder(stand))):
            await until(lambda before=before: stand.count() == before + RECORDS)  # type: ignore[misc] # bound by name
        assert step.assigned[: stand.partitions] == [
            (partition, str(before // stand.partitions) if before else None) for partition in range(stand.partitions)
        ]
    assert stand.read() == stand.expected(3 * RECORDS)


async def test_process_of_partitions_without_records_joins_a_group_that_has_begun(broker: str) -> None:
    stand = Stand(broker)
    producer = Producer({"bootstrap.servers": broker})
    producer.produce(stand.topic("in"), b"only", partition=0)
    assert producer.flush(20) == 0
    async with running(stand.wiring(Schematic(), 0, holds_results=finder(stand))) as one:
        await until(lambda: stand.count() == 1)
        async with running(stand.wiring(Schematic(), 1, holds_results=finder(stand))) as other:
            await until(lambda: len(one.session.next_offsets()) == len(other.session.next_offsets()) == 2)
    assert stand.count() == 1


def test_progress_and_foreign_records_are_no_results(broker: str) -> None:
    stand = Stand(broker)
    out = stand.topic("out")
    producer = Producer({"bootstrap.servers": broker})
    assert not holds_results(stand.kafka, out)
    for headers, holds in (((), False), (headers_of(PROGRESS, {}), False), (headers_of(PARTIALS, {}), True)):
        producer.produce(out, b"", partition=2, headers=list(headers))
        assert producer.flush(20) == 0
        assert holds_results(stand.kafka, out) is holds
    assert not holds_results(stand.kafka, stand.topic("nowhere"))
