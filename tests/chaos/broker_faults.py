"""Faults of the broker: killed, away, held still, restarted in good order, its disk full, its records deleted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

from chaos.world import SESSION_S, TRANSACTION_S, World
from helpers.kafka import Pipeline
from skewless import topology

RECOVERY_S = 60.0
HALT_S = 10.0
OUTAGE_S = (10.0, 20.0)
REST_S = 4.0
"""Retention deletes the end of a partition only when nothing was written for long; here this long."""
INTERNAL = tuple(topic.name for topic in topology.TOPICS if not topic.public and topic.cleanup == "delete")

Ends = dict[str, dict[int, int]]
"""Topic -> partition -> next offset."""


def alone(fault: Callable[[World], Iterator[float]]) -> Callable[[World], Iterator[float]]:
    """Let only one fault at a time have the broker."""

    def guarded(world: World) -> Iterator[float]:
        if "broker" not in world.taken:
            world.taken.add("broker")
            yield from fault(world)
            world.taken.remove("broker")

    return guarded


@alone
def broker_kill(world: World) -> Iterator[float]:
    """Kill the broker, and start it after up to five seconds."""
    world.journal.say("SIGKILL broker", "broker kills")
    world.server.broker.kill()
    yield world.chance.uniform(0.0, 5.0)
    yield from come_back(world)


@alone
def broker_outage(world: World) -> Iterator[float]:
    """Kill the broker, and start it when the sessions of all processes are over."""
    seconds = world.chance.uniform(*OUTAGE_S)
    world.journal.say(f"SIGKILL broker, away for {seconds:.1f} s", "broker outages")
    world.server.broker.kill()
    yield seconds
    yield from come_back(world)


@alone
def retention(world: World) -> Iterator[float]:
    """Delete the internal records that all of their readers have committed, to the end where nothing moves."""
    try:
        before = _ends(world.pipeline)
        yield REST_S
        targets = _targets(world, before, _ends(world.pipeline))
        for future in world.pipeline.admin.delete_records(targets).values():
            future.result(10)
    except KafkaException as error:
        world.journal.say(f"records were not deleted: {error}")
        return
    world.journal.say(f"deleted what was read of {len(targets)} partitions", "retentions")


def _ends(pipeline: Pipeline) -> Ends:
    return {topic: pipeline.ends(topic, IsolationLevel.READ_COMMITTED) for topic in INTERNAL}


def _targets(world: World, before: Ends, after: Ends) -> list[TopicPartition]:
    """First offset to keep of each partition.

    The only offset between a reader's commit and the end of committed records is the marker of a transaction.
    """
    found = []
    for topic in INTERNAL:
        written = world.pipeline.ends(topic, IsolationLevel.READ_UNCOMMITTED)
        readers = [world.progress.committed(row.name) for row in topology.STAGES if topic in row.inputs]
        for partition, end in after[topic].items():
            if any(partition not in reader for reader in readers):
                continue
            committed = min(reader[partition] for reader in readers)
            rests = before[topic][partition] == end == written[partition] and end - committed <= 1
            found.append(TopicPartition(world.pipeline.settings.topic(topic), partition, end if rests else committed))
    return found


@alone
def broker_restart(world: World) -> Iterator[float]:
    """Stop the broker in good order, and start it again."""
    world.journal.say("SIGTERM broker", "broker restarts")
    world.server.broker.stop()
    yield world.chance.uniform(0.0, 3.0)
    yield from come_back(world)


@alone
def broker_stop(world: World) -> Iterator[float]:
    """Hold the broker still, from short to beyond session and transaction timeout."""
    seconds = world.chance.choice((1.0, SESSION_S + 1.0, TRANSACTION_S + 4.0))
    world.journal.say(f"SIGSTOP broker for {seconds:g} s", "broker stops")
    world.server.signal(signal.SIGSTOP)
    yield seconds
    world.server.signal(signal.SIGCONT)
    yield from watch(world)


@alone
def disk_full(world: World) -> Iterator[float]:
    """Let the broker's disk be full: its writes fail and it halts; started again, it has room."""
    world.journal.say("the broker's disk is full", "disks full")
    world.server.fill_disk()
    deadline = world.now() + HALT_S
    while world.server.broker.pid is not None and world.now() < deadline:
        yield 0.1
    halted = "halted" if world.server.broker.pid is None else f"still runs after {HALT_S:g} s and is killed"
    world.journal.say(f"the broker {halted}")
    world.server.broker.kill()
    yield from come_back(world)


def come_back(world: World) -> Iterator[float]:
    """Start the broker again and see how long the stages need."""
    world.server.start()
    yield from watch(world)


def watch(world: World) -> Iterator[float]:
    """Wait until all stages go on."""
    since = world.now()
    world.journal.say("the broker answers")
    while (seconds := world.progress.recovered(since)) is None:
        if world.now() > since + RECOVERY_S:
            world.journal.say(f"not recovered after {RECOVERY_S:g} s", "not recovered")
            seconds = RECOVERY_S
            break
        yield 0.1
    world.journal.say(f"all stages went on {seconds:.1f} s after the broker's return")
    world.recoveries.append(seconds)
