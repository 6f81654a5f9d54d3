"""Faults of the network between processes and broker: held, held one way, reset, refused, delivered too late."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chaos.world import SESSION_S, TRANSACTION_S, World

TIMES_S = (0.5 * SESSION_S, SESSION_S + 1.0, TRANSACTION_S + 3.0)


def alone(fault: Callable[[World], Iterator[float]]) -> Callable[[World], Iterator[float]]:
    """Let only one fault at a time have the network."""

    def guarded(world: World) -> Iterator[float]:
        if "network" not in world.taken:
            world.taken.add("network")
            yield from fault(world)
            world.proxy.heal()
            world.journal.say("the network is whole")
            world.taken.remove("network")

    return guarded


@alone
def hold(world: World) -> Iterator[float]:
    """Let nothing through, either way: a partition that both sides see as silence."""
    who, pids = _victims(world)
    world.journal.say(f"hold all traffic of {who}", "network cuts")
    world.proxy.hold(("up", "down"), pids)
    yield world.chance.choice(TIMES_S)


@alone
def deaf(world: World) -> Iterator[float]:
    """Let requests through and no answers back: the outcome of commits is unknown."""
    who, pids = _victims(world)
    world.journal.say(f"hold the broker's answers to {who}", "network cuts")
    world.proxy.hold(("down",), pids)
    yield world.chance.choice(TIMES_S)


@alone
def reset(world: World) -> Iterator[float]:
    """Reset connections again and again, then refuse new ones for a while."""
    who, pids = _victims(world)
    world.journal.say(f"reset connections of {who}", "network cuts")
    for _ in range(world.chance.randint(1, 6)):
        world.proxy.reset(pids, refuse=False)
        yield world.chance.uniform(0.05, 0.5)
    world.proxy.reset(pids, refuse=True)
    yield world.chance.choice(TIMES_S)


@alone
def ghost(world: World) -> Iterator[float]:
    """Kill a process, and deliver what it had sent before only when its successor has taken over."""
    member = world.pick()
    if member is None:
        return
    world.journal.say(f"hold what {member.name} sends, then kill it", "network cuts")
    world.proxy.hold(("up",), world.pids([member]))
    yield world.chance.uniform(0.3, 1.0)
    world.crew.kill(member)
    yield world.chance.uniform(2.0, 4.0)


def _victims(world: World) -> tuple[str, frozenset[int]]:
    members = world.crew.running()
    if members and world.chance.random() < 0.6:
        members = [world.chance.choice(members)]
        return members[0].name, world.pids(members)
    return "all", world.pids(members)
