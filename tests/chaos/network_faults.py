"""Faults of the network between processes and broker: held, held one way, reset, refused, delivered too late."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chaos.context import SESSION_S, TRANSACTION_S, ChaosContext

TIMES_S = (0.5 * SESSION_S, SESSION_S + 1.0, TRANSACTION_S + 3.0)


def alone(fault: Callable[[ChaosContext], Iterator[float]]) -> Callable[[ChaosContext], Iterator[float]]:
    """Lock the network, so that only one fault at a time changes it."""

    def guarded(context: ChaosContext) -> Iterator[float]:
        if "network" not in context.used:
            context.used.add("network")
            yield from fault(context)
            context.proxy.heal()
            context.journal.write("the network is restored")
            context.process_group.count_outage()
            context.used.remove("network")

    return guarded


@alone
def hold(context: ChaosContext) -> Iterator[float]:
    """Hold traffic in both directions: a network partition, which both sides see as silence."""
    who, pids = _victims(context)
    context.journal.write(f"hold all traffic of {who}", "network cuts")
    context.proxy.hold(("up", "down"), pids)
    yield context.rng.choice(TIMES_S)


@alone
def deaf(context: ChaosContext) -> Iterator[float]:
    """Deliver requests but hold responses: the outcome of commits is unknown."""
    who, pids = _victims(context)
    context.journal.write(f"hold the broker's answers to {who}", "network cuts")
    context.proxy.hold(("down",), pids)
    yield context.rng.choice(TIMES_S)


@alone
def reset(context: ChaosContext) -> Iterator[float]:
    """Reset connections repeatedly, then refuse new ones for a while."""
    who, pids = _victims(context)
    context.journal.write(f"reset connections of {who}", "network cuts")
    for _ in range(context.rng.randint(1, 6)):
        context.proxy.reset(pids, refuse=False)
        yield context.rng.uniform(0.05, 0.5)
    context.proxy.reset(pids, refuse=True)
    yield context.rng.choice(TIMES_S)


@alone
def ghost(context: ChaosContext) -> Iterator[float]:
    """Kill a process, and deliver its last requests only after its successor has its partitions."""
    member = context.pick()
    if member is None:
        return
    context.journal.write(f"hold what {member.name} sends, then kill it", "network cuts")
    context.proxy.hold(("up",), context.pids([member]))
    yield context.rng.uniform(0.3, 1.0)
    context.process_group.kill(member)
    yield context.rng.uniform(2.0, 4.0)


def _victims(context: ChaosContext) -> tuple[str, frozenset[int]]:
    members = context.process_group.running()
    if members and context.rng.random() < 0.6:
        members = [context.rng.choice(members)]
        return members[0].name, context.pids(members)
    return "all", context.pids(members)
