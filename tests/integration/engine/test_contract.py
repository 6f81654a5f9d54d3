"""The engine's consumer and producer against a real broker: one test for each known pitfall."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from helpers.waiting import WAIT_S
from helpers.waiting import until as wait_until
from integration.engine.harness import Copy, Harness, build, failure_of, running, started, until
from skewless.engine import consumer_loop, group_session
from skewless.engine.assignment import PartitionState
from skewless.engine.message_batch import MessageBatch
from skewless.engine.rebalance import Rebalance
from skewless.errors import BrokerError, ConfigurationError, FencedError, SkewlessError, TransactionAbortedError
from skewless.kafka.producer import transactional
from skewless.kafka.settings import TransportSettings
from skewless.wire.record import Batch
from skewless.wire.topic_partition import TopicPartition

RECORDS = 4000


@pytest.fixture
def harness(broker: str) -> Harness:
    return Harness(broker)


async def copied(harness: Harness, records: int = RECORDS) -> None:
    await until(lambda: harness.count() >= records)
    assert harness.read() == harness.expected(records)


@pytest.mark.parametrize("table", ["Table", "GlobalTable", "SetTable", "SetGlobalTable"])
async def test_faust_app_tables_are_refused(harness: Harness, table: str) -> None:
    with pytest.raises(ConfigurationError, match="tables"):
        getattr(build(harness.wiring(Copy())), table)("counts")


async def test_faust_app_send_outside_the_transaction_is_refused(harness: Harness) -> None:
    app = build(harness.wiring(Copy()))
    with pytest.raises(ConfigurationError, match="its step returns outputs"):
        await app.send(harness.topic("out"), value=b"x")


async def test_faust_app_records_are_copied_once_with_checkpoints_in_the_offset_metadata(harness: Harness) -> None:
    harness.fill(RECORDS)
    async with running(harness.wiring(Copy())):
        await copied(harness)
    assert harness.committed() == {p: (RECORDS // 4, str(RECORDS // 4)) for p in range(4)}


async def test_faust_agent_receives_batches_of_records(harness: Harness) -> None:
    sizes: list[int] = []
    harness.fill(RECORDS)
    async with running(harness.wiring(Copy(lambda batch: sizes.append(len(batch.values))))):
        await copied(harness)
    assert sum(sizes) == RECORDS
    assert len(sizes) < RECORDS / 20


async def test_consumer_loop_one_thread_calls_the_consumer_and_the_event_loop_runs_the_step(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers: set[int] = set()

    class Watched(confluent_kafka.Consumer):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            callers.add(threading.get_ident())
            return super().__getattribute__(name)

    monkeypatch.setattr(group_session, "Consumer", Watched)
    step = Copy()
    harness.fill(RECORDS)
    async with running(harness.wiring(step)):
        await copied(harness)
    assert len(callers) == 1
    assert step.threads == {threading.get_ident()}
    assert not callers & step.threads


async def test_consumer_loop_lag_of_a_paused_partition_grows_with_its_topic(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch gives the end of a log. Nothing is fetched of a partition that waits for others."""
    monkeypatch.setattr(consumer_loop, "PAUSED_RANGES_S", 0.1)

    class Waiting(Copy):
        @property
        def blocked(self) -> frozenset[int]:
            return frozenset({0} & {partition for partition, copied in self.copied.items() if copied})

    harness.fill(RECORDS)
    async with running(harness.wiring(Waiting())) as app:
        await copied(harness)
        harness.fill(RECORDS, start=RECORDS)
        place = TopicPartition(harness.topic("in"), 0)
        await until(lambda: app.runtime.executor.lag.get(place) == RECORDS // 4)
        assert harness.count() <= RECORDS + 3 * RECORDS // 4


@pytest.mark.thorough
async def test_executor_without_committed_offset_reads_from_the_beginning_and_restart_continues(
    harness: Harness,
) -> None:
    harness.fill(1000)
    async with running(harness.wiring(Copy())):
        await copied(harness, 1000)
    harness.fill(1000, start=1000)
    again = Copy()
    async with running(harness.wiring(again)):
        await copied(harness, 2000)
    assert sorted(again.assigned[:4]) == [(p, "250") for p in range(4)]


async def test_faust_app_running_creates_no_topics(harness: Harness) -> None:
    harness.fill(100)
    async with running(harness.wiring(Copy())):
        await copied(harness, 100)
    topics = AdminClient({"bootstrap.servers": harness.bootstrap}).list_topics(timeout=WAIT_S).topics
    assert [name for name in topics if name.startswith(harness.prefix)] != []
    assert [name for name in topics if "assignor" in name] == []


async def test_executor_rebalances_neither_lose_nor_repeat_records(harness: Harness) -> None:
    first, second = Copy(), Copy()
    harness.fill(RECORDS)
    async with running(harness.wiring(first)):
        await until(lambda: harness.count() > 0)
        async with running(harness.wiring(second, member=1)):
            harness.fill(RECORDS, start=RECORDS)
            # The members get their partitions one after the other, so the test waits for both.
            await until(lambda: len(first.copied) == len(second.copied) == 2)
            await copied(harness, 2 * RECORDS)
            assert [set(first.copied), set(second.copied)] == [{0, 2}, {1, 3}], "the first ones are the workers in use"
        harness.fill(RECORDS, start=2 * RECORDS)
        # The second member is static: its partitions stay assigned to it until its session ends.
        await copied(harness, 3 * RECORDS)


async def test_executor_beside_a_process_of_an_earlier_version_has_a_range_of_partitions(harness: Harness) -> None:
    """Until the last process of a version before 0.6.4 is replaced, the group uses the strategy of that version."""
    step, over = Copy(), threading.Event()
    group, instance = f"{harness.prefix}-copy", f"{harness.prefix}-copy-1"
    options = {"group.id": group, "group.instance.id": instance, "partition.assignment.strategy": "range"}
    earlier = confluent_kafka.Consumer({"bootstrap.servers": harness.bootstrap, **options})

    def poll() -> None:
        earlier.subscribe([harness.topic("in")])
        while not over.is_set():
            earlier.poll(0.1)
        earlier.close()

    async with running(harness.wiring(step)):
        await until(lambda: len(step.copied) == 4)
        polls = asyncio.create_task(asyncio.to_thread(poll))
        await until(lambda: set(step.copied) == {0, 1})
        over.set()
        await polls


@pytest.mark.thorough
async def test_consumer_loop_member_asked_to_leave_revokes_at_once_and_the_last_one_stays_a_member(
    harness: Harness,
) -> None:
    harness.transport = TransportSettings.model_validate({**harness.transport.model_dump(), "session_timeout_s": 60})
    first, second = Copy(), Copy()
    harness.fill(RECORDS)
    async with running(harness.wiring(first)) as app:
        async with running(harness.wiring(second, member=1)) as other:
            await until(lambda: len(second.copied) == 2)
            await other.stop_thread(leave=True)
        harness.fill(RECORDS, start=RECORDS)
        await until(lambda: len(first.copied) == 4)
        await copied(harness, 2 * RECORDS)
        await app.stop_thread(leave=True)
    # No other member exists, so the restarted member finds the group unchanged.
    assert harness.members() == [f"{harness.prefix}-copy-0"]


async def test_consumer_loop_input_topic_gains_partitions_ends_the_process(harness: Harness) -> None:
    harness.kafka = harness.kafka.model_copy(update={"options": {"topic.metadata.refresh.interval.ms": 300}})
    harness.fill(100)
    failures = []
    async with started(harness.wiring(Copy(), partitions=4)) as app:
        await copied(harness, 100)
        admin = AdminClient({"bootstrap.servers": harness.bootstrap})
        admin.create_partitions([NewPartitions(harness.topic("in"), 6)])[harness.topic("in")].result()
        failures.append(await failure_of(app))
    async with started(harness.wiring(Copy(), partitions=4)) as app:
        failures.append(await failure_of(app))
    for failure in failures:
        assert isinstance(failure, BrokerError), failure
        counts = f"topic {harness.topic('in')} has 6 partitions, and at the start of this process 4: the numbers must"
        assert str(failure).startswith(counts)
        assert "skewless topics apply" in str(failure)


async def test_executor_step_raises_ends_the_process_and_commits_nothing_of_the_batch(harness: Harness) -> None:
    def crash(batch: Batch) -> None:
        if b"2000" in batch.values:
            raise ZeroDivisionError

    harness.fill(RECORDS)
    async with started(harness.wiring(Copy(crash))) as app:
        assert isinstance(await failure_of(app), ZeroDivisionError)
    assert b"2000" not in harness.read()[0]
    async with running(harness.wiring(Copy())):
        await copied(harness)


async def test_faust_agent_raises_ends_the_process_and_commits_nothing_of_the_batch(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(_batch: MessageBatch) -> None:
        raise ValueError("crashed")

    harness.fill(100)
    wiring = harness.wiring(Copy())
    monkeypatch.setattr(wiring.executor, "process", crash)  # an error that the executor does not catch
    async with started(wiring) as app:
        failure = await failure_of(app)
    assert isinstance(failure, ValueError)
    assert {offset for offset, _ in harness.committed().values()} <= {OFFSET_INVALID, 0}


async def test_executor_aborted_transactions_are_processed_again_from_the_committed_checkpoint(
    harness: Harness,
) -> None:
    failures = iter([3, 5, 8])
    batches = processed = 0
    wanted = next(failures)

    def fail_sometimes(batch: Batch) -> None:
        nonlocal batches, processed, wanted
        batches += 1
        processed += len(batch.values)
        if batches == wanted:
            wanted = next(failures, 0)
            raise TransactionAbortedError("a test wants it")

    harness.transport = TransportSettings.model_validate({**harness.transport.model_dump(), "max_poll_records": 300})
    harness.fill(RECORDS)
    async with running(harness.wiring(Copy(fail_sometimes))):
        await copied(harness)
    assert wanted == 0
    assert harness.committed() == {p: (RECORDS // 4, str(RECORDS // 4)) for p in range(4)}
    assert processed > RECORDS


async def test_transactional_producer_unknown_commit_outcome_is_replaced(harness: Harness) -> None:
    seen: list[int] = []

    def fail_once(_batch: Batch) -> None:
        seen.append(1)
        if len(seen) == 2:
            raise TransactionAbortedError("a commit timed out", replace_output=True)

    harness.fill(RECORDS)
    async with running(harness.wiring(Copy(fail_once))):
        await copied(harness)
    assert len(seen) > 2


@pytest.mark.thorough
async def test_executor_fenced_by_a_producer_outside_the_group_continues_with_a_new_producer(harness: Harness) -> None:
    async with running(harness.wiring(Copy())) as app:
        harness.fill(100)
        await until(lambda: harness.count() == 100)
        stranger = Producer({"bootstrap.servers": harness.bootstrap, "transactional.id": f"{harness.prefix}-copy-0"})
        await asyncio.to_thread(stranger.init_transactions, WAIT_S)
        stranger.begin_transaction()
        stranger.produce(f"{harness.prefix}.out", b"of a stranger")
        harness.fill(100, start=100)
        await copied(harness, 200)
        assert app.executor.statistics.resets > 0
        with pytest.raises(KafkaException, match="fenced"):
            await asyncio.to_thread(stranger.commit_transaction, WAIT_S)


async def test_executor_second_process_with_the_same_number_replaces_the_first_under_load(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional, "HANG_MARGIN_S", 60.0)  # a slow answer would count as a hanging client
    fed, over = 0, threading.Event()
    join = Rebalance.join

    def feed() -> None:
        nonlocal fed
        while not over.is_set():
            harness.fill(40, start=fed)
            fed += 40

    first, second = harness.wiring(Copy()), harness.wiring(Copy())

    def join_later(rebalance: Rebalance) -> None:
        """Let the first process commit while the second one starts, as on busy cores."""
        if rebalance._output is second.output:
            copied_before = harness.count()
            wait_until(lambda: harness.count() > copied_before + 80)
        join(rebalance)

    monkeypatch.setattr(Rebalance, "join", join_later)
    feeder = asyncio.create_task(asyncio.to_thread(feed))
    async with started(first) as replaced:
        await until(lambda: harness.count() > 0)
        async with running(second):
            assert isinstance(await failure_of(replaced), FencedError)
            over.set()
            await feeder
            await copied(harness, fed)
    # A new producer would have fenced the second process.
    assert first.output.replaced == 0
    assert first.executor.statistics.resets <= 1


def join_and_vanish(harness: Harness, member: int = 0) -> None:
    """Join as the harness's stage and send no heartbeats, as after a join request whose response was lost."""
    group, instance = f"{harness.prefix}-copy", f"{harness.prefix}-copy-{member}"
    options = {"group.id": group, "group.instance.id": instance, "session.timeout.ms": 6000}
    ghost = confluent_kafka.Consumer(
        {"bootstrap.servers": harness.bootstrap, "partition.assignment.strategy": "range", **options}
    )
    ghost.subscribe([harness.topic("in")])
    while not ghost.assignment():
        ghost.poll(0.1)
    ghost.close()  # without LeaveGroup, because it is a static member


async def test_executor_commit_fenced_by_a_member_that_no_process_uses_continues(harness: Harness) -> None:
    # With this interval a commit finds it before a heartbeat does.
    harness.kafka = harness.kafka.model_copy(update={"options": {"heartbeat.interval.ms": 3000}})
    harness.fill(1000)
    wiring = harness.wiring(Copy())
    async with running(wiring):
        await copied(harness, 1000)
        await asyncio.to_thread(join_and_vanish, harness)
        harness.fill(1000, start=1000)
        await copied(harness, 2000)
        assert wiring.executor.statistics.resets == 1


async def test_executor_member_gone_in_a_transaction_is_aborted_when_the_group_has_lost_it(harness: Harness) -> None:
    harness.transport = TransportSettings(commit_interval_s=0.1, transaction_timeout_s=300)
    # The broker itself would abort the transaction after its timeout.
    options = {"transactional.id": f"{harness.prefix}-copy-1", "transaction.timeout.ms": 300_000}
    gone = Producer({"bootstrap.servers": harness.bootstrap, **options})
    await asyncio.to_thread(gone.init_transactions, WAIT_S)
    gone.begin_transaction()
    gone.produce(harness.topic("out"), b"of a process that was killed", partition=0)
    assert gone.flush(WAIT_S) == 0
    harness.fill(1000)
    step = Copy()
    async with running(harness.wiring(step)):
        await until(lambda: bool(step.copied))
        await asyncio.to_thread(join_and_vanish, harness, 1)
        await copied(harness, 1000)
    with pytest.raises(KafkaException, match="fenced"):
        await asyncio.to_thread(gone.commit_transaction, WAIT_S)


@pytest.mark.thorough
async def test_back_pressure_slow_step_bounds_the_batches_in_flight(harness: Harness) -> None:
    harness.transport = TransportSettings.model_validate(
        {**harness.transport.model_dump(), "max_poll_records": 100, "max_in_flight_batches": 2}
    )
    harness.fill(20_000)
    wiring = harness.wiring(Copy())
    held = asyncio.Event()
    process = wiring.executor.process

    async def slow(batch: Any, before_step: Any = lambda _batch: None) -> None:
        await held.wait()
        await process(batch, before_step)

    def waiting() -> int:
        return wiring.executor.assignment.in_flight_batches()

    wiring.executor.process = slow  # type: ignore[method-assign] # the agent's way to the step is held up
    async with running(wiring):
        await until(lambda: waiting() > 0)
        await until(lambda: {each.state for each in wiring.executor.assignment.running()} == {PartitionState.PAUSED})
        most = waiting()
        held.set()
        await copied(harness, 20_000)
    assert most <= 4 * 3


async def test_executor_at_least_once_copies_every_record(harness: Harness) -> None:
    harness.transport = TransportSettings.model_validate(
        {**harness.transport.model_dump(), "guarantee": "at_least_once"}
    )
    harness.fill(RECORDS)
    async with running(harness.wiring(Copy())):
        await copied(harness)
    assert harness.committed() == {p: (RECORDS // 4, str(RECORDS // 4)) for p in range(4)}


@pytest.mark.thorough
async def test_executor_stale_batch_of_a_lost_partition_is_ignored(harness: Harness) -> None:
    harness.fill(100)
    wiring = harness.wiring(Copy())
    caught: list[Any] = []
    process = wiring.executor.process

    async def catch(batch: Any, before_step: Any = lambda _batch: None) -> None:
        caught.append(batch)
        await process(batch, before_step)

    wiring.executor.process = catch  # type: ignore[method-assign] # keeps what the agent was handed
    async with running(wiring):
        await copied(harness, 100)
        wiring.executor.assignment.generation += 1
        await process(caught[0])
        wiring.executor.assignment.generation -= 1
    assert harness.read() == harness.expected(100)


async def test_executor_missing_topic_raises_with_its_name(harness: Harness) -> None:
    wiring = harness.wiring(Copy(), topic=f"{harness.prefix}.nowhere")
    async with started(wiring) as app:
        failure = await failure_of(app)
    assert isinstance(failure, SkewlessError), failure
    assert "nowhere" in str(failure)
