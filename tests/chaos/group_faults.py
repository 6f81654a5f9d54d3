"""Faults of membership: processes join and leave, die in a rebalance, run twice under one name, or stay away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from chaos.crew import Member
from chaos.process_faults import was_hit
from chaos.world import SESSION_S, World
from helpers.kafka import STAGES

MOST = 4
"""Processes of a stage."""
TWIN_S = 60.0
STORM_S = 20.0
UP_S = 30.0
AWAY_S = (5.0, 20.0)


def storm(world: World) -> Iterator[float]:
    """Let processes of all stages join and leave, one every second or two, until the first ones are left."""
    joined: list[Member] = []
    end = world.now() + STORM_S
    while world.now() < end:
        joined = [member for member in joined if member in world.crew.running()]
        up = [member for member in joined if world.crew.is_up(member)]
        if up and (len(joined) > 3 or world.chance.random() < 0.4):
            leave(world, world.chance.choice(up))
        elif member := join(world):
            joined.append(member)
        yield world.chance.uniform(1.0, 2.0)
    for member in joined:
        if member in world.crew.running():
            leave(world, member)
        yield 1.0


def rebalance_kill(world: World) -> Iterator[float]:
    """Kill a process in a callback of a rebalance, which a new process brings about."""
    joiner = join(world)
    if joiner is None:
        return
    member = next(each for each in world.crew.members if each.stage == joiner.stage)
    point = world.chance.choice(("before-revoke", "after-revoke", "before-assign", "after-assign"))
    token = world.arm(member, point, "kill")
    yield from was_hit(world, member, token, "kills")
    yield world.chance.uniform(0.5, 3.0)
    if joiner in world.crew.members:
        leave(world, joiner)


def twin(world: World) -> Iterator[float]:
    """Run a second process of an instance number: one transactional id and one group instance id for two."""
    original = world.pick()
    if original is None or "twin" in world.taken:
        return
    world.taken.add("twin")
    world.crew.contested.add(original.name)
    second = world.crew.join(original.name, twin=True)
    world.journal.counts["twins"] += 1
    began = world.now()
    while second in world.crew.members and world.now() < began + TWIN_S:
        yield 0.1
    if second in world.crew.members:
        world.journal.say(f"{second.label} still runs after {TWIN_S:g} s", "twins that stay")
        world.crew.end(second)
    world.crew.contested.discard(original.name)
    world.taken.remove("twin")


def zombie(world: World) -> Iterator[float]:
    """Freeze a process beyond its session, start another of its name, and let the first one wake up.

    The process must be a member of its group. One that is frozen before it joins is no zombie when it wakes up: it
    joins as any process does that is started twice.
    """
    member = world.pick()
    if member is None or "twin" in world.taken or not world.crew.is_up(member):
        return
    world.taken.add("twin")
    child = world.crew.freeze(member)
    yield SESSION_S + world.chance.uniform(0.5, 3.0)
    if child is not None and member.child is child and child.poll() is None and member in world.crew.members:
        yield from _replaced(world, member, child)
    world.crew.thaw(member, child)
    world.taken.remove("twin")


def _replaced(world: World, member: Member, child: subprocess.Popen[bytes]) -> Iterator[float]:
    world.crew.contested.add(member.name)
    heir = world.crew.replace(member)
    world.journal.counts["zombies"] += 1
    began = world.now()
    while not world.crew.is_up(heir) and world.now() < began + UP_S:
        yield 0.1
    yield world.chance.uniform(0.0, 3.0)
    world.crew.thaw(member, child)
    began = world.now()
    while member in world.crew.members and world.now() < began + TWIN_S:
        yield 0.1
    if member in world.crew.members:
        world.journal.say(f"{member.label} still runs {TWIN_S:g} s after it woke up", "zombies that stay")
        world.crew.wrong.append(f"{member.label} is a zombie and went on")
        world.crew.end(member)
    world.crew.contested.discard(member.name)
    heir.heir = False


def absence(world: World) -> Iterator[float]:
    """Take all processes of a stage away for a while: what it missed arrives in large batches."""
    if "absence" in world.taken:
        return
    world.taken.add("absence")
    stage, seconds = world.chance.choice(STAGES), world.chance.uniform(*AWAY_S)
    world.journal.say(f"{stage} is away for {seconds:.1f} s", "absences")
    world.crew.take_away(stage)
    yield seconds
    world.crew.away.discard(stage)
    world.taken.remove("absence")


def join(world: World) -> Member | None:
    """Add a process to a stage that is not full."""
    stages: dict[str, set[int]] = {}
    for member in world.crew.members:
        stages.setdefault(member.stage, set()).add(int(member.name.partition("-")[2]))
    free = [
        (stage, number)
        for stage, numbers in stages.items()
        if stage != "observer" and stage not in world.crew.away
        for number in range(1, MOST)
        if number not in numbers
    ]
    if not free:
        return None
    stage, number = world.chance.choice(free)
    world.spans.append(("join", stage, world.now()))
    return world.crew.join(f"{stage}-{number}")


def leave(world: World, member: Member) -> None:
    """Let a process leave in good order."""
    world.spans.append(("leave", member.stage, world.now()))
    world.crew.leave(member)
