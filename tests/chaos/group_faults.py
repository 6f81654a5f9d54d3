"""Faults of membership: processes join and leave, die in a rebalance, have duplicates, or are absent."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.context import SESSION_S, ChaosContext
from chaos.process_faults import ABORTABLE, was_hit
from chaos.process_group import StageProcess
from skewless.lab.local.child_process import ChildProcess

MOST = 4
"""Maximum number of processes of a stage."""
DUPLICATE_S = 60.0
STORM_S = 20.0
UP_S = 30.0
AWAY_S = (5.0, 20.0)


def storm(context: ChaosContext) -> Iterator[float]:
    """Let processes of all stages join and leave, one every second or two. The original processes remain."""
    joined: list[StageProcess] = []
    end = context.now() + STORM_S
    while context.now() < end:
        joined = [member for member in joined if member in context.process_group.running()]
        up = [member for member in joined if context.process_group.is_up(member)]
        if up and (len(joined) > 3 or context.rng.random() < 0.4):
            leave(context, context.rng.choice(up))
        elif member := join(context):
            joined.append(member)
        yield context.rng.uniform(1.0, 2.0)
    for member in joined:
        if member in context.process_group.running():
            leave(context, member)
        yield 1.0


def rebalance_kill(context: ChaosContext) -> Iterator[float]:
    """Kill a process in a callback of a rebalance, which the start of another process triggers."""
    joiner = join(context)
    if joiner is None:
        return
    member = next(each for each in context.process_group.members if each.stage == joiner.stage)
    point = context.rng.choice(("before-revoke", "after-revoke", "before-assign", "after-assign"))
    token = context.arm(member, point, "kill")
    yield from was_hit(context, member, token, "kills")
    yield context.rng.uniform(0.5, 3.0)
    if joiner in context.process_group.members:
        leave(context, joiner)


def gone(context: ChaosContext) -> Iterator[float]:
    """Kill a process in a transaction for good: another process of its stage aborts it and takes over."""
    member = join(context)
    if member is None:
        return
    began = context.now()
    while not context.process_group.is_assigned(member) and context.now() < began + UP_S:
        yield 0.1
    if member not in context.process_group.running():
        return
    token = context.arm(member, "written", "kill")
    member.again = False
    yield from was_hit(context, member, token, "kills")
    if member in context.process_group.running():
        leave(context, member)


def duplicate(context: ChaosContext) -> Iterator[float]:
    """Start a second process with one instance number: both have one transactional id and one group instance id."""
    original = context.pick()
    if original is None or "instance" in context.used:
        return
    context.used.add("instance")
    context.process_group.contested.add(original.name)
    second = context.process_group.join(original.name, duplicate=True)
    context.journal.counts["duplicates"] += 1
    began = context.now()
    while second in context.process_group.members and context.now() < began + DUPLICATE_S:
        yield 0.1
    if second in context.process_group.members:
        context.journal.write(f"{second.label} still runs after {DUPLICATE_S:g} s", "duplicates that continue")
        context.process_group.end(second)
    context.process_group.contested.discard(original.name)
    context.used.remove("instance")


def zombie(context: ChaosContext) -> Iterator[float]:
    """Freeze a process longer than its session, start another of its name, and resume the first one.

    It is frozen at a random moment or at a named point of a transaction. The process must be a member of its group. A
    process that is frozen before it joins, or joins again, is not a zombie when it resumes: it joins as a duplicate
    instance does.
    """
    member = context.pick()
    if member is None or "instance" in context.used or not context.process_group.is_assigned(member):
        return
    context.used.add("instance")
    child = member.child
    yield from _freeze(context, member)
    yield SESSION_S + context.rng.uniform(0.5, 3.0)
    if child is not None and member.child is child and child.poll() is None and member in context.process_group.members:
        yield from _replaced(context, member, child)
    context.process_group.thaw(member, child)
    context.used.remove("instance")


def _freeze(context: ChaosContext, member: StageProcess) -> Iterator[float]:
    point = context.rng.choice((None, None, "produced", "before-commit", "before-abort"))
    if point is None:
        context.process_group.freeze(member)
        return
    if point == "before-abort":
        context.arm(member, "before-commit", "raise", error=ABORTABLE)
    yield from was_hit(context, member, context.arm(member, point, "stop"), "stops")


def _replaced(context: ChaosContext, member: StageProcess, child: ChildProcess) -> Iterator[float]:
    context.process_group.contested.add(member.name)
    heir = context.process_group.replace(member)
    context.journal.counts["zombies"] += 1
    began = context.now()
    while not context.process_group.is_up(heir) and context.now() < began + UP_S:
        yield 0.1
    yield context.rng.uniform(0.0, 3.0)
    context.process_group.thaw(member, child)
    began = context.now()
    while member in context.process_group.members and context.now() < began + DUPLICATE_S:
        yield 0.1
    if member in context.process_group.members:
        context.journal.write(f"{member.label} still runs {DUPLICATE_S:g} s after it resumed", "zombies that stay")
        context.process_group.failures.append(f"{member.label} is a zombie and continued")
        context.process_group.end(member)
    context.process_group.contested.discard(member.name)
    heir.heir = False


def absence(context: ChaosContext) -> Iterator[float]:
    """Stop all processes of a stage for a while, so that it then receives large batches."""
    if "absence" in context.used:
        return
    context.used.add("absence")
    stage, seconds = context.rng.choice(context.stages), context.rng.uniform(*AWAY_S)
    context.journal.write(f"{stage} is away for {seconds:.1f} s", "absences")
    context.process_group.stop_stage(stage)
    yield seconds
    context.process_group.away.discard(stage)
    context.used.remove("absence")


def join(context: ChaosContext) -> StageProcess | None:
    """Add a process to a stage that has fewer than the maximum."""
    stages: dict[str, set[int]] = {}
    for member in context.process_group.members:
        stages.setdefault(member.stage, set()).add(int(member.name.partition("-")[2]))
    free = [
        (stage, number)
        for stage, numbers in stages.items()
        if stage != "observer" and stage not in context.process_group.away
        for number in range(1, MOST)
        if number not in numbers
    ]
    if not free:
        return None
    stage, number = context.rng.choice(free)
    context.spans.append(("join", stage, context.now()))
    return context.process_group.join(f"{stage}-{number}")


def leave(context: ChaosContext, member: StageProcess) -> None:
    """Stop a process cleanly."""
    context.spans.append(("leave", member.stage, context.now()))
    context.process_group.leave(member)
