"""Under any faults of processes, broker and network, offsets and outputs agree: nothing is lost or duplicated.

The engine's own code runs against a model of the broker in virtual time, without threads (deterministic simulation). To
run more examples than CI: SKEWLESS_MACHINE_EXAMPLES=5000 SKEWLESS_MACHINE_STEPS=80.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from helpers.engine import at, waiting
from laws.model_broker import STATE_TOPIC, Broker, Clock, Membership
from laws.model_clients import (
    SESSION_S,
    Fault,
    Link,
    ModelConsumer,
    ModelProducer,
    TimedCalls,
    in_background,
    while_serving,
)
from laws.model_process import SHAPE, Process
from laws.model_store import Store, StoreOutput
from skewless.engine import consumer_loop, group_session, open_transactions, rebalance, restore
from skewless.engine import executor as executor_module
from skewless.engine.assignment import WAITING_BATCHES
from skewless.engine.commit_policy import LATEST
from skewless.engine.output import Output
from skewless.errors import FencedError, RecoverableError, SkewlessError
from skewless.kafka import outage_log as outage_module
from skewless.kafka.consumer import leave_group as leaving_module
from skewless.kafka.producer import base as producer_module
from skewless.kafka.producer import transactional as transactional_module
from skewless.kafka.settings import TransportSettings
from skewless.wire.offset_metadata import decode_offset_metadata
from skewless.wire.topic_partition import CommittedOffset

TIMEOUTS = ["time out before", "time out after"]
STUCK = ["stuck before", "stuck after"]
DEATHS = ["die before", "die after"]
MEANWHILE = ["meanwhile agent", "meanwhile lost", "meanwhile lost for long", "meanwhile others"]
FAULTS = {
    "init_transactions": [*TIMEOUTS, *DEATHS, "fatal"],
    "send_offsets": [*TIMEOUTS, *STUCK, *DEATHS, *MEANWHILE, "abortable", "fatal"],
    "commit_transaction": [*TIMEOUTS, *STUCK, *DEATHS, *MEANWHILE, "abortable", "fatal", "delay"],
    "abort_transaction": [*TIMEOUTS, *STUCK, *DEATHS, *MEANWHILE],
    "produce": [*DEATHS, "full", "unknown", "undelivered"],
    "committed": ["time out before", *DEATHS, *MEANWHILE],
    "offsets_for_times": ["time out before", *DEATHS, *MEANWHILE],
    "describe_group": ["time out before", *DEATHS, *MEANWHILE],
    "restore": [*DEATHS, *MEANWHILE],
    "poll": [*DEATHS, "meanwhile agent", "meanwhile lost"],
    "consume": [*DEATHS, *MEANWHILE, "meanwhile rebalance"],
}
PLAIN = {"flush": ["time out before", *DEATHS, *MEANWHILE], "commit": [*TIMEOUTS, *DEATHS, *MEANWHILE]}
calls = st.sampled_from(sorted(FAULTS))
some_fault = st.integers(0, 20)
some_times = st.sampled_from([1, 1, 2, 5])
some_process = st.integers(0, 3)
some_partition = st.integers(0, 3)


class TransportMachine(RuleBasedStateMachine):
    """A stage of up to three processes; exactly once."""

    guarantee = "exactly_once"
    of_transactions: Mapping[str, str] = {}
    """Transactional calls, and the calls that replace them at least once."""
    output: Callable[[Link], Output] | None = None
    """Creates the output of a process; None for a producer."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.links: dict[str, Link] = {}
        self.loop = asyncio.new_event_loop()
        self.processes: list[Process] = []
        self.numbers = count()
        self.sound = True
        self.nested = False
        self.patch = pytest.MonkeyPatch()
        for module in (rebalance, group_session, open_transactions, transactional_module, executor_module):
            self.patch.setattr(module.log, "disabled", True)
        engine_modules = (consumer_loop, group_session, restore)
        for module in (*engine_modules, producer_module, outage_module, transactional_module, leaving_module):
            self.patch.setattr(module, "time", self.clock)
        self.patch.setattr(transactional_module, "TimedCalls", TimedCalls)
        self.patch.setattr(restore, "while_serving", while_serving)
        for module in (open_transactions, restore):
            self.patch.setattr(module, "in_background", in_background)
        self.patch.setattr(group_session, "Consumer", lambda options: ModelConsumer(self.link(options), options))
        self.patch.setattr(producer_module, "Producer", lambda options: ModelProducer(self.link(options), options))

    def link(self, options: Mapping[str, object]) -> Link:
        return self.links[str(options["bootstrap.servers"])]

    @initialize(
        partitions=st.integers(1, 4),
        instances=st.integers(1, 3),
        batches=st.integers(1, 8),
        pause_after_s=st.sampled_from([0.0, 1.0]),
    )
    def begin(self, partitions: int, instances: int, batches: int, pause_after_s: float) -> None:
        self.partitions = partitions
        self.broker = Broker(self.clock, partitions)
        self.pause_after_s = pause_after_s
        self.transport = TransportSettings.model_validate(
            {
                "guarantee": self.guarantee,
                "max_in_flight_batches": batches,
                "max_poll_records": 8,
                "session_timeout_s": SESSION_S,
            }
        )
        self.drain = False
        for instance in range(instances):
            self.start(instance)

    def start(self, instance: int) -> None:
        name = f"stage-{instance}"
        process = Process(
            self.broker,
            self.loop,
            self.links,
            instance=name,
            number=next(self.numbers),
            transport=self.transport,
            pause_after_s=self.pause_after_s,
            drain=self.drain,
            output=self.output,
        )
        process.link.interlude = partial(self.meanwhile, process)
        self.processes.append(process)
        self.settle()

    def process(self, number: int) -> Process | None:
        return self.processes[number % len(self.processes)] if self.processes else None

    def settle(self) -> None:
        """Check the processes that have ended, and remove them."""
        ended = [process for process in self.processes if process.over]
        self.processes = [process for process in self.processes if not process.over]
        for process in ended:
            if process.failure is not None:
                self.judge(process)

    def judge(self, process: Process) -> None:
        """Raise the failure of a process unless a fault justifies it."""
        failure = process.failure
        assert failure is not None
        final = isinstance(failure, SkewlessError) and not isinstance(failure, RecoverableError)
        if not final or not process.disturbed:
            self.sound = False
            raise failure

    # Time and topics

    @rule(partition=some_partition, records=st.integers(1, 6), marker=st.booleans())
    def write(self, partition: int, records: int, marker: bool) -> None:  # noqa: FBT001 - drawn by name
        log = self.broker.inputs[partition % self.partitions]
        log += [b"%d/%d" % (partition % self.partitions, len(log) + at) for at in range(records)]
        log += [None] * marker

    @rule(seconds=st.sampled_from([1.0, 4.0, 12.5, 16.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def deliver_late_requests(self) -> None:
        self.broker.deliver_delayed()

    @rule()
    def rebalance(self) -> None:
        self.broker.group.rebalance()

    # Processes

    @rule(number=some_process, commit=st.booleans(), fetch=st.integers(0, 8))
    def turn(self, number: int, commit: bool, fetch: int) -> None:  # noqa: FBT001 - drawn by name
        if process := self.process(number):
            self.take_turn(process, commit=commit, fetch=fetch)

    @rule(rounds=st.integers(1, 4))
    def all_take_turns(self, rounds: int) -> None:
        for _ in range(rounds):
            for process in list(self.processes):
                self.take_turn(process, commit=True, fetch=8)
                process.work_off()
        self.settle()

    def take_turn(self, process: Process, *, commit: bool, fetch: int) -> None:
        process.link.fetch = fetch
        if commit:
            self.clock.advance(self.transport.commit_interval_s * LATEST)
        process.turn()
        self.settle()

    @rule(number=some_process, partition=some_partition, records=st.integers(1, 6))
    def work(self, number: int, partition: int, records: int) -> None:
        if process := self.process(number):
            process.work(partition % self.partitions, records)

    @rule(number=some_process, on=st.booleans())
    def hold(self, number: int, on: bool) -> None:  # noqa: FBT001 - drawn by name
        if process := self.process(number):
            process.hold(on=on)

    # Faults

    @rule(number=some_process, call=calls, fault=some_fault, times=some_times)
    def plan_fault(self, number: int, call: str, fault: int, times: int) -> None:
        if process := self.process(number):
            self.plan(process, call, fault, times)

    def plan(self, process: Process, call: str, fault: int, times: int) -> None:
        name = self.of_transactions.get(call, call)
        kinds = (FAULTS | PLAIN)[name]
        process.plan(name, Fault(kinds[fault % len(kinds)], times))

    @rule(number=some_process, call=calls, fault=some_fault, times=some_times, wait_s=st.sampled_from([0.0, 0.0, 13.0]))
    def fail_while_busy(self, number: int, call: str, fault: int, times: int, wait_s: float) -> None:
        """Inject a fault at a busy moment: a transaction is open, and there are more records."""
        self.all_take_turns(2)
        if process := self.process(number):
            self.write_to_all(4)
            self.take_turn(process, commit=False, fetch=2)
            for partition in range(self.partitions):
                process.work(partition, 2)
            self.clock.advance(wait_s)
            self.plan(process, call, fault, times)
            self.take_turn(process, commit=True, fetch=8)

    @rule(number=some_process, rounds=st.integers(2, 4))
    def fall_behind(self, number: int, rounds: int) -> None:
        """Suspend a process: it reads and processes nothing."""
        if process := self.process(number):
            self.write_to_all(6)
            for _ in range(rounds):
                self.take_turn(process, commit=False, fetch=2)

    def write_to_all(self, records: int) -> None:
        for partition in range(self.partitions):
            self.write(partition, records, marker=False)

    @rule(number=some_process, seconds=st.sampled_from([4.0, 12.5]), unnoticed_polls=st.sampled_from([0, 4]))
    def suspend(self, number: int, seconds: float, unnoticed_polls: int) -> None:
        if process := self.process(number):
            process.link.suspended, process.link.unnoticed_polls = True, unnoticed_polls
            self.clock.advance(seconds)

    @rule(number=some_process)
    def kill(self, number: int) -> None:
        if process := self.process(number):
            process.kill()

    @rule(number=some_process, leave=st.booleans())
    def stop(self, number: int, leave: bool) -> None:  # noqa: FBT001 - drawn by name
        if process := self.process(number):
            process.disturbed = True  # its last commit may be refused, and no other commit follows
            self.stop_cleanly(process, leave=leave)

    def stop_cleanly(self, process: Process, *, leave: bool) -> None:
        """Stop, while the agent continues to process until the end."""
        process.link.faults["close"] = Fault("meanwhile agent")
        # A producer that failed to abort is dropped. Its transaction ends with the next producer or by the broker's
        # timeout.
        had_producer = process.producer.ready
        process.stop(leave=leave)
        if process.failure is None and had_producer and not (process.killed or process.duplicated):
            assert process.instance not in self.broker.open, "a clean stop leaves an open transaction behind"

    @rule(number=some_process)
    def end_session(self, number: int) -> None:
        if process := self.process(number):
            self.broker.group.leave(process.instance)

    @rule(instance=st.integers(0, 2))
    def start_again(self, instance: int) -> None:
        """Start a process, even if one with its name runs. Then one of the two must end."""
        duplicates = [process for process in self.processes if process.instance == f"stage-{instance}"]
        for process in duplicates:
            process.disturbed = process.duplicated = True
        self.start(instance)
        if duplicates:
            self.processes[-1].disturbed = self.processes[-1].duplicated = True

    @rule(instance=st.integers(0, 2))
    def give_up_a_place(self, instance: int) -> None:
        """End the session of a process that does not rejoin."""
        if all(process.instance != f"stage-{instance}" for process in self.processes):
            self.broker.group.leave(f"stage-{instance}")

    def meanwhile(self, process: Process, kind: str) -> None:
        """Let other actions happen during a call of the process."""
        if self.nested:
            return
        self.nested = True
        if kind in {"meanwhile agent", "meanwhile rebalance"}:
            process.work_off()
        if kind == "meanwhile rebalance":
            self.broker.group.rebalance()
        if kind.startswith("meanwhile lost"):
            self.broker.group.leave(process.instance)
        if kind == "meanwhile lost for long":
            self.clock.advance(16.0)
        if kind != "meanwhile agent":
            self.others_take_turns(process)
        self.nested = False

    def others_take_turns(self, process: Process) -> None:
        for _ in range(4):
            for other in self.processes:
                if other is not process:
                    other.link.fetch = 8
                    self.clock.advance(self.transport.commit_interval_s * LATEST)
                    other.turn()
                    other.work_off()

    def suspend_and_replace(self, suspended: Process, away_s: float) -> None:
        """Suspend the only process for some time, and start another one in its place."""
        suspended.link.suspended = suspended.disturbed = suspended.duplicated = True
        self.clock.advance(away_s)
        self.start(0)
        successor = self.processes[-1]
        for _ in range(3):
            self.write_to_all(2)
            self.take_turn(successor, commit=True, fetch=8)
            successor.work_off()
        # The successor has an open transaction while the suspended process continues.
        self.write_to_all(2)
        self.take_turn(successor, commit=False, fetch=8)
        successor.work_off()
        self.take_turn(successor, commit=False, fetch=8)

    # Invariants

    @invariant()
    def all_holds(self) -> None:
        with self.judging():
            self.settle()
            for partition, log in enumerate(self.broker.inputs):
                offset, metadata = self.committed(partition)
                saved = decode_offset_metadata(metadata)
                assert saved.state_schema == (SHAPE if metadata else None)
                done = [value for value in log[:offset] if value is not None]
                self.check_partition(partition, done, saved.checkpoint or "{}")
            for process in self.processes:
                self.check_memory(process)

    def committed(self, partition: int) -> tuple[int, str]:
        """Return the committed offset of a partition, and its metadata."""
        return self.broker.committed.get(partition, (0, ""))

    def check_partition(self, partition: int, done: list[bytes], checkpoint: str) -> None:
        """Compare the visible outputs with the records before the committed offset."""
        known = json.loads(checkpoint)
        assert known.get("count", 0) == len(done)
        assert sorted(self.broker.visible("out", partition)) == sorted(done)
        watermarks = [b"%d" % at for at in range(1, 1 + known.get("watermarks", 0))]
        assert self.broker.visible("watermarks", partition) == watermarks
        assert self.broker.visible(STATE_TOPIC, partition)[-1:] == ([b"%d" % len(done)] if done else [])

    def check_memory(self, process: Process) -> None:
        """Check that in-flight records are counted correctly, and bounded."""
        batches = [waiting(process.executor, partition) for partition in range(self.partitions)]
        assert process.batches == sum(batches)
        assert max(batches) <= WAITING_BATCHES

    @contextmanager
    def judging(self) -> Iterator[None]:
        sound, self.sound = self.sound, False
        yield
        self.sound = sound

    # Completion

    def teardown(self) -> None:
        try:
            if self.sound and hasattr(self, "broker"):
                self.reach_rest()
                self.drain_all()
        finally:
            for process in self.processes:
                process.kill()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
            self.patch.undo()

    def reach_rest(self) -> None:
        """End all faults. Then all records must be processed in a bounded number of iterations."""
        self.heal()
        self.run_until(lambda: self.all_is_committed() and self.group_is_calm())
        self.all_holds()
        self.outlive_retention()

    def outlive_retention(self) -> None:
        """Delete all processed records and markers, and restart every process: no offset may be out of range."""
        self.run_until(self.ends_are_committed)
        self.broker.begins = [len(log) for log in self.broker.inputs]
        for process in list(self.processes):
            process.disturbed = False
            process.kill()
        self.settle()
        self.run_until(self.group_is_calm)
        assert all(process.failure is None for process in self.processes)

    def ends_are_committed(self) -> bool:
        """Return whether the committed offsets are after all records and markers."""
        ends = dict(enumerate(map(len, self.broker.inputs)))
        return all(self.committed(partition)[0] == end for partition, end in ends.items())

    def drain_all(self) -> None:
        """Drain after a clean stop, as a bounded run does: no transaction stays open, and no output is repeated."""
        for process in list(self.processes):
            process.disturbed = False
            self.stop_cleanly(process, leave=len(self.processes) > 1)
        self.settle()
        self.write_to_all(5)
        self.drain = True
        self.heal()
        self.run_until(lambda: all(process.executor.finished for process in self.processes))
        self.all_holds()
        for partition, log in enumerate(self.broker.inputs):
            ends = self.broker.visible("end", partition)
            assert ends == [b"end"] or (ends and not any(log)), f"partition {partition}: {len(ends)} ends"

    def heal(self) -> None:
        self.broker.deliver_delayed()
        for process in self.processes:
            process.link.faults.clear()
            process.hold(on=False)

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(80):
            for instance in range(3):
                if all(process.instance != f"stage-{instance}" for process in self.processes):
                    self.start(instance)
            if condition():
                return
            self.all_take_turns(1)
            self.clock.advance(0.5)
        raise AssertionError("not settled after 80 iterations of every process without a fault")

    def group_is_calm(self) -> bool:
        """Return whether every process is a member of the group, in the view of both."""
        group = self.broker.group
        known = {process.instance: process.membership for process in self.processes}
        current = {name: Membership(name, member, group.generation) for name, member in group.members.items()}
        return not group.rebalancing and len(known) == len(self.processes) and known == current

    def all_is_committed(self) -> bool:
        ends = {partition: len(_stripped(log)) for partition, log in enumerate(self.broker.inputs)}
        return all(self.committed(partition)[0] >= end for partition, end in ends.items())


class PlainMachine(TransportMachine):
    """At least once: everything before the committed offset was written, possibly more than once."""

    guarantee = "at_least_once"
    of_transactions: Mapping[str, str] = {
        "init_transactions": "poll",
        "send_offsets": "flush",
        "commit_transaction": "commit",
        "abort_transaction": "produce",
    }

    def check_partition(self, partition: int, done: list[bytes], checkpoint: str) -> None:
        known = json.loads(checkpoint)
        assert known.get("count", 0) == len(done)
        assert set(self.broker.visible("out", partition)) >= set(done)
        watermarks = {b"%d" % at for at in range(1, 1 + known.get("watermarks", 0))}
        assert set(self.broker.visible("watermarks", partition)) >= watermarks


class StoreMachine(TransportMachine):
    """Exactly once into a database that also stores the offsets. The group in Kafka has none."""

    of_transactions: Mapping[str, str] = {
        "init_transactions": "commit",
        "send_offsets": "commit",
        "commit_transaction": "commit",
        "abort_transaction": "commit",
        "produce": "commit",
    }

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.output = partial(StoreOutput, self.store)

    def committed(self, partition: int) -> tuple[int, str]:
        assert not self.broker.committed
        offset, metadata, _ = self.store.offsets.get(at(partition), CommittedOffset(0))
        return offset, metadata


def _stripped(log: list[bytes | None]) -> list[bytes | None]:
    """Remove markers at the end, because no record shows them."""
    end = len(log)
    while end and log[end - 1] is None:
        end -= 1
    return log[:end]


RUNS = settings(
    max_examples=int(os.environ.get("SKEWLESS_MACHINE_EXAMPLES", settings().max_examples * 6 // 5)),
    stateful_step_count=int(os.environ.get("SKEWLESS_MACHINE_STEPS", "50")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestExactlyOnce = TransportMachine.TestCase
TestExactlyOnce.settings = RUNS
TestAtLeastOnce = PlainMachine.TestCase
TestAtLeastOnce.settings = RUNS
TestExactlyOnceIntoStore = StoreMachine.TestCase
TestExactlyOnceIntoStore.settings = RUNS


@pytest.mark.parametrize(
    "moment",
    ["idle", "in a transaction", "with unsent records", "before an outage", "in an outage", "in a revocation"],
)
@pytest.mark.parametrize("away_s", [4.0, 12.5, 16.0])
@pytest.mark.parametrize("unnoticed_polls", [0, 4])
@pytest.mark.parametrize("kind", [TransportMachine, PlainMachine, StoreMachine])
def test_executor_suspended_and_replaced_process_ends_and_spares_its_successor(
    kind: type[TransportMachine], away_s: float, moment: str, unnoticed_polls: int
) -> None:
    machine = kind()
    try:
        machine.begin(partitions=2, instances=1, batches=4, pause_after_s=1.0)
        machine.write_to_all(4)
        machine.all_take_turns(4)
        (suspended,) = machine.processes
        if moment in {"in a transaction", "in a revocation"}:
            machine.write_to_all(4)
            machine.take_turn(suspended, commit=False, fetch=8)
            suspended.work_off()
        elif moment == "with unsent records":
            # The step writes the second of two records at once. The output sends it with the next one.
            machine.write(0, 2, marker=False)
            machine.take_turn(suspended, commit=False, fetch=8)
            suspended.work_off()
        # The client reports the outage before it is fenced.
        suspended.link.all_brokers_down = moment == "before an outage"
        if moment == "in an outage":
            suspended.plan("describe_group", Fault("time out before", 5))
        if moment == "in a revocation":
            machine.broker.group.rebalance()
            suspended.link.interlude = lambda _kind: machine.suspend_and_replace(suspended, away_s)
            suspended.plan(kind.of_transactions.get("send_offsets", "send_offsets"), Fault("meanwhile replaced"))
            machine.take_turn(suspended, commit=False, fetch=8)
        else:
            machine.suspend_and_replace(suspended, away_s)
        successor = machine.processes[-1]
        suspended.link.unnoticed_polls = unnoticed_polls
        machine.all_take_turns(8)
        assert isinstance(suspended.failure, FencedError)
        assert successor.failure is None
        assert not successor.over
        # Its transaction may time out in an outage.
        assert successor.executor.statistics.resets <= (moment == "in an outage")
        machine.all_holds()
    except BaseException:
        machine.sound = False
        raise
    finally:
        machine.teardown()


@pytest.mark.parametrize("wait_s", [0.0, 13.0])
@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("call", sorted(FAULTS))
@pytest.mark.parametrize("kind", [TransportMachine, PlainMachine, StoreMachine])
def test_executor_each_fault_at_a_busy_moment_recovers_exactly(
    kind: type[TransportMachine], call: str, times: int, wait_s: float
) -> None:
    name = kind.of_transactions.get(call, call)
    for fault in range(len((FAULTS | PLAIN)[name])):
        machine = kind()
        try:
            machine.begin(partitions=2, instances=2, batches=4, pause_after_s=1.0)
            machine.all_take_turns(4)
            machine.fail_while_busy(number=0, call=call, fault=fault, times=times, wait_s=wait_s)
            machine.all_holds()
            machine.all_take_turns(2)
            machine.all_holds()
        except BaseException:
            machine.sound = False
            raise
        finally:
            machine.teardown()


def test_executor_member_gone_in_a_transaction_is_aborted_when_the_group_has_lost_it() -> None:
    machine = TransportMachine()
    try:
        machine.begin(partitions=2, instances=2, batches=4, pause_after_s=1.0)
        machine.all_take_turns(4)
        machine.write_to_all(4)
        _, gone = machine.processes
        machine.take_turn(gone, commit=False, fetch=8)
        gone.work_off()
        assert gone.instance in machine.broker.open
        gone.kill()
        machine.settle()
        machine.broker.group.leave(gone.instance)
        since = machine.clock.now
        machine.all_take_turns(4)
        assert machine.clock.now - since < machine.transport.transaction_timeout_s
        assert gone.instance not in machine.broker.open
        assert machine.all_is_committed()
        machine.all_holds()
    except BaseException:
        machine.sound = False
        raise
    finally:
        machine.teardown()
