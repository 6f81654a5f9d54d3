"""Faults of single processes: killed, held still, or told errors, at random moments and at named points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaError

from chaos.crew import Member
from chaos.world import SESSION_S, TRANSACTION_S, World

HIT_S = 8.0
"""How long an armed point is waited for."""
TRANSACTION = ("produced", "before-offsets", "before-commit", "written", "in-commit", "after-commit")
IN_COMMIT_S = 0.02
"""A commit takes about as long."""
ABORTABLE = {"error": KafkaError.ILLEGAL_GENERATION, "reason": "by the test", "txn_requires_abort": True}
ERRORS = {
    "a call that has to be repeated": ({"error": KafkaError._TIMED_OUT, "reason": "by the test", "retriable": True}),
    "an error that aborts": ABORTABLE,
    "an error that ends the producer": {"error": KafkaError.INVALID_TXN_STATE, "reason": "by the test", "fatal": True},
}


def kill(world: World) -> Iterator[float]:
    """Kill one process at any moment."""
    if member := world.pick():
        world.crew.kill(member)
    yield 0.0


def kill_all(world: World) -> Iterator[float]:
    """Kill all processes at once."""
    for member in world.crew.running():
        world.crew.kill(member)
    yield 5.0


def kill_at_point(world: World) -> Iterator[float]:
    """Kill a process at a named point of a transaction."""
    if member := world.pick():
        point = world.chance.choice(TRANSACTION)
        delay_s = world.chance.uniform(0, IN_COMMIT_S) if point == "in-commit" else 0.0
        token = world.arm(member, point, "kill", delay_s=delay_s)
        yield from was_hit(world, member, token, "kills")


def kill_in_init(world: World) -> Iterator[float]:
    """Kill a process, and again while its successor takes over the transactional id."""
    if member := world.pick():
        token = world.arm(member, "init", "kill")
        world.crew.kill(member)
        yield from was_hit(world, member, token, "kills")


def kill_in_abort(world: World) -> Iterator[float]:
    """Kill a process at the moment of an abort that an error has made necessary."""
    if member := world.pick():
        world.arm(member, "before-commit", "raise", error=ABORTABLE)
        token = world.arm(member, "before-abort", "kill")
        yield from was_hit(world, member, token, "kills")


def stop(world: World) -> Iterator[float]:
    """Hold a process still, from short to beyond session and transaction timeout."""
    if member := world.pick():
        child = world.crew.freeze(member)
        yield world.chance.choice((0.5 * SESSION_S, SESSION_S + 1.0, TRANSACTION_S + 3.0))
        world.crew.thaw(member, child)


def stop_at_point(world: World) -> Iterator[float]:
    """Hold a process still at a named point, until session and transaction have timed out."""
    if member := world.pick():
        token = world.arm(member, world.chance.choice((*TRANSACTION, "init")), "stop")
        yield from was_hit(world, member, token, "stops")
        yield TRANSACTION_S + 3.0
        world.crew.thaw(member, member.child)


def error(world: World) -> Iterator[float]:
    """Raise an error of librdkafka where it may come."""
    if member := world.pick():
        what, facts = world.chance.choice(list(ERRORS.items()))
        points = ("before-offsets", "before-commit") if facts.get("retriable") else ("produced", "before-commit")
        world.journal.say(f"{member.name} will be told {what}")
        token = world.arm(member, world.chance.choice(points), "raise", error=facts)
        yield from was_hit(world, member, token, "errors")


def was_hit(world: World, member: Member, token: Path, counted: str) -> Iterator[float]:
    """Wait until a point was reached; disarm it if that takes too long."""
    deadline = world.now() + HIT_S
    while token.exists():
        if world.now() > deadline:
            token.unlink(missing_ok=True)
            world.journal.say(f"{token.name} was not reached", "not reached")
            return
        yield 0.01
    world.journal.say(f"hit {member.name} at {token.suffix[1:]}", counted)
