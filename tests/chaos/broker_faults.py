"""Faults of the broker: killed, unreachable, frozen, restarted cleanly, its disk full, its records deleted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

from chaos.context import SESSION_S, TRANSACTION_S, ChaosContext
from helpers.kafka import Pipeline
from skewless import topology

RECOVERY_S = 60.0
HALT_S = 10.0
OUTAGE_S = (10.0, 20.0)
REST_S = 4.0
"""Time in s without writes after which retention deletes the end of a partition."""
INTERNAL = tuple(
    topic.name
    for topic in topology.TOPICS
    if not topic.public and topic.cleanup == "delete" and topic.partitions != "join"
)
"""Topics of which a stage does not read records again. A join does, as long as they wait."""

Ends = dict[str, dict[int, int]]
"""Topic -> partition -> next offset."""


def alone(fault: Callable[[ChaosContext], Iterator[float]]) -> Callable[[ChaosContext], Iterator[float]]:
    """Lock the broker, so that only one fault at a time changes it."""

    def guarded(context: ChaosContext) -> Iterator[float]:
        if "broker" not in context.used:
            context.used.add("broker")
            context.server.choose(context.rng)
            yield from fault(context)
            context.used.remove("broker")

    return guarded


@alone
def broker_kill(context: ChaosContext) -> Iterator[float]:
    """Kill the broker, and start it after up to five seconds."""
    context.journal.write("SIGKILL broker", "broker kills")
    context.server.broker.kill()
    yield context.rng.uniform(0.0, 5.0)
    yield from come_back(context)


@alone
def broker_outage(context: ChaosContext) -> Iterator[float]:
    """Kill the broker, and start it after the sessions of all processes have expired."""
    seconds = context.rng.uniform(*OUTAGE_S)
    context.journal.write(f"SIGKILL broker, away for {seconds:.1f} s", "broker outages")
    context.server.broker.kill()
    yield seconds
    yield from come_back(context)


@alone
def retention(context: ChaosContext) -> Iterator[float]:
    """Delete the internal records that no reader needs any more, up to the end of idle partitions."""
    try:
        before = _ends(context.pipeline)
        yield REST_S
        targets = _targets(context, before, _ends(context.pipeline))
        for future in context.pipeline.admin.delete_records(targets).values():
            future.result(10)
    except KafkaException as error:
        context.journal.write(f"records were not deleted: {error}")
        return
    context.journal.write(f"deleted what was read of {len(targets)} partitions", "retentions")


def _ends(pipeline: Pipeline) -> Ends:
    return {topic: pipeline.ends(topic, IsolationLevel.READ_COMMITTED) for topic in INTERNAL}


def _targets(context: ChaosContext, before: Ends, after: Ends) -> list[TopicPartition]:
    """Return the first offset to keep of each partition.

    The only offset between a reader's commit and the end of committed records is a transaction marker.
    """
    found = []
    for topic in INTERNAL:
        written = context.pipeline.ends(topic, IsolationLevel.READ_UNCOMMITTED)
        readers = [context.progress.needed(name) for name in context.stages if topic in topology.stage(name).inputs]
        for partition, end in after[topic].items():
            if any(partition not in reader for reader in readers):
                continue
            committed = min(reader[partition] for reader in readers)
            rests = before[topic][partition] == end == written[partition] and end - committed <= 1
            found.append(TopicPartition(context.pipeline.settings.topic(topic), partition, end if rests else committed))
    return found


@alone
def broker_restart(context: ChaosContext) -> Iterator[float]:
    """Stop the broker cleanly, and start it again."""
    context.journal.write("SIGTERM broker", "broker restarts")
    context.server.broker.stop()
    yield context.rng.uniform(0.0, 3.0)
    yield from come_back(context)


@alone
def broker_stop(context: ChaosContext) -> Iterator[float]:
    """Freeze the broker, for a short time or longer than session and transaction timeout."""
    seconds = context.rng.choice((1.0, SESSION_S + 1.0, TRANSACTION_S + 4.0))
    context.journal.write(f"SIGSTOP broker for {seconds:g} s", "broker stops")
    context.server.signal(signal.SIGSTOP)
    yield seconds
    context.server.signal(signal.SIGCONT)
    yield from watch(context)


@alone
def disk_full(context: ChaosContext) -> Iterator[float]:
    """Fill the broker's disk: its writes fail and it halts. After its restart the disk has free space."""
    context.journal.write("the broker's disk is full", "disks full")
    context.server.fill_disk()
    deadline = context.now() + HALT_S
    while context.server.broker.pid is not None and context.now() < deadline:
        yield 0.1
    halted = "halted" if context.server.broker.pid is None else f"still runs after {HALT_S:g} s and is killed"
    context.journal.write(f"the broker {halted}")
    context.server.broker.kill()
    yield from come_back(context)


def come_back(context: ChaosContext) -> Iterator[float]:
    """Start the broker again and record how long the stages need to recover."""
    context.server.start()
    yield from watch(context)


def watch(context: ChaosContext) -> Iterator[float]:
    """Wait until all stages make progress."""
    since = context.now()
    context.journal.write("the broker answers")
    context.process_group.count_outage()
    while (seconds := context.progress.recovered(since)) is None:
        if context.now() > since + RECOVERY_S:
            context.journal.write(f"not recovered after {RECOVERY_S:g} s", "not recovered")
            seconds = RECOVERY_S
            break
        yield 0.1
    context.journal.write(f"all stages made progress {seconds:.1f} s after the broker's return")
    context.recoveries.append(seconds)
    # Otherwise the next fault could hit the only broker with all records.
    while not context.server.is_in_sync() and context.now() < since + RECOVERY_S:
        yield 0.1
