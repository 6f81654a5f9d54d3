"""Faults of the broker: killed, held still, restarted in good order, its disk full."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from acceptance.chaos.world import SESSION_S, TRANSACTION_S, World

RECOVERY_S = 60.0
HALT_S = 10.0


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
