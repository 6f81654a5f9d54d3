"""What a fault can reach: processes, broker, network, and the seed's dice."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from chaos.crew import Crew, Member
from chaos.journal import Journal
from chaos.progress import Progress
from chaos.proxy import Proxy
from chaos.server import Server
from helpers.kafka import Pipeline

SESSION_S = 3.0
TRANSACTION_S = 5.0


@dataclass
class World:
    """One run under fire."""

    chance: Random
    journal: Journal
    pipeline: Pipeline
    crew: Crew
    server: Server
    proxy: Proxy
    progress: Progress
    taken: set[str] = field(default_factory=set)
    """What only one fault at a time may use."""
    recoveries: list[float] = field(default_factory=list)
    """Seconds from a broker's return until all stages have committed all their partitions again."""
    pauses: list[tuple[str, float]] = field(default_factory=list)
    """Rebalances (join or leave), and for how many seconds one partition of the stage stood still in it."""
    spans: list[tuple[str, str, float]] = field(default_factory=list)
    """Rebalances: what, stage, time."""

    @classmethod
    def of(  # noqa: PLR0913 - by name
        cls, seed: int, journal: Journal, pipeline: Pipeline, server: Server, proxy: Proxy, *, strict: bool
    ) -> World:
        """Make the world of a seed, before anything runs."""
        crew = Crew(pipeline, journal, strict=strict)
        progress = Progress(server.bootstrap, {})
        world = cls(Random(seed), journal, pipeline, crew, server, proxy, progress)  # noqa: S311 - seeded, not secret
        crew.unreachable = lambda: bool(world.taken & {"broker", "network"})
        return world

    def pick(self, *, but: tuple[str, ...] = ()) -> Member | None:
        """Choose a process that runs."""
        members = [member for member in self.crew.running() if member.stage not in but and member.again]
        return self.chance.choice(members) if members else None

    def arm(self, member: Member, point: str, do: str, **more: object) -> Path:
        """Arm a fault point."""
        self.journal.say(f"arm {member.name} at {point}: {do}" + "".join(f" {k}={v}" for k, v in more.items()))
        return self.pipeline.arm(member.name, point, do, **more)

    def pids(self, members: list[Member]) -> frozenset[int]:
        """Process ids of those that run."""
        return frozenset(member.child.pid for member in members if member.child is not None)

    def now(self) -> float:
        """Seconds of the steady clock."""
        return time.monotonic()
