"""Faults of single processes: killed, frozen, or errors raised, at random moments and at named points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaError

from chaos.context import SESSION_S, TRANSACTION_S, ChaosContext
from chaos.process_group import StageProcess

HIT_S = 8.0
"""Time in s after which an armed point that was not reached is disarmed."""
TRANSACTION = ("produced", "before-offsets", "before-commit", "written", "in-commit", "after-commit")
IN_COMMIT_S = 0.02
"""Approximate duration of a commit in s."""
ABORTABLE = {"error": KafkaError.ILLEGAL_GENERATION, "reason": "by the test", "txn_requires_abort": True}
ERRORS = {
    "a call that has to be repeated": ({"error": KafkaError._TIMED_OUT, "reason": "by the test", "retriable": True}),
    "an error that aborts": ABORTABLE,
    "an error that ends the producer": {"error": KafkaError.INVALID_TXN_STATE, "reason": "by the test", "fatal": True},
}


def kill(context: ChaosContext) -> Iterator[float]:
    """Kill one process at a random moment."""
    if member := context.pick():
        context.process_group.kill(member)
    yield 0.0


def kill_all(context: ChaosContext) -> Iterator[float]:
    """Kill all processes at once."""
    for member in context.process_group.running():
        context.process_group.kill(member)
    yield 5.0


def kill_at_point(context: ChaosContext) -> Iterator[float]:
    """Kill a process at a named point of a transaction."""
    if member := context.pick():
        point = context.rng.choice(TRANSACTION)
        delay_s = context.rng.uniform(0, IN_COMMIT_S) if point == "in-commit" else 0.0
        token = context.arm(member, point, "kill", delay_s=delay_s)
        yield from was_hit(context, member, token, "kills")


def kill_in_init(context: ChaosContext) -> Iterator[float]:
    """Kill a process, and kill its successor while it initialises the transactional id."""
    if member := context.pick():
        token = context.arm(member, "init", "kill")
        context.process_group.kill(member)
        yield from was_hit(context, member, token, "kills")


def kill_in_abort(context: ChaosContext) -> Iterator[float]:
    """Kill a process during the abort that a raised error causes."""
    if member := context.pick():
        context.arm(member, "before-commit", "raise", error=ABORTABLE)
        token = context.arm(member, "before-abort", "kill")
        yield from was_hit(context, member, token, "kills")


def stop(context: ChaosContext) -> Iterator[float]:
    """Freeze a process, for a short time or longer than session and transaction timeout."""
    # If the process that replaced a zombie is frozen, too, the zombie continues, and rightly so.
    member = context.pick()
    if member is None or "instance" in context.used:
        return
    context.used.add("instance")
    child = context.process_group.freeze(member)
    yield context.rng.choice((0.5 * SESSION_S, SESSION_S + 1.0, TRANSACTION_S + 3.0))
    context.process_group.thaw(member, child)
    context.used.remove("instance")


def stop_at_point(context: ChaosContext) -> Iterator[float]:
    """Freeze a process at a named point until session and transaction have timed out."""
    # As in `stop`. A point also belongs to a name: of several processes, any may reach it.
    member = context.pick()
    if member is None or "instance" in context.used:
        return
    context.used.add("instance")
    token = context.arm(member, context.rng.choice((*TRANSACTION, "init")), "stop")
    yield from was_hit(context, member, token, "stops")
    yield TRANSACTION_S + 3.0
    context.process_group.thaw(member, member.child)
    context.used.remove("instance")


def error(context: ChaosContext) -> Iterator[float]:
    """Raise an error of librdkafka at a call that can raise it."""
    if member := context.pick():
        what, entries = context.rng.choice(list(ERRORS.items()))
        points = ("before-offsets", "before-commit") if entries.get("retriable") else ("produced", "before-commit")
        context.journal.write(f"{member.name} will receive {what}")
        token = context.arm(member, context.rng.choice(points), "raise", error=entries)
        yield from was_hit(context, member, token, "errors")


def was_hit(context: ChaosContext, member: StageProcess, token: Path, counted: str) -> Iterator[float]:
    """Wait until a point was reached; disarm it after a timeout."""
    deadline = context.now() + HIT_S
    while token.exists():
        if context.now() > deadline:
            token.unlink(missing_ok=True)
            context.journal.write(f"{token.name} was not reached", "not reached")
            return
        yield 0.01
    context.journal.write(f"hit {member.name} at {token.suffix[1:]}", counted)
