"""Context of the faults: processes, broker, network, and the seed's random numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from chaos.journal import Journal
from chaos.process_group import ProcessGroup, StageProcess
from chaos.progress import Progress
from chaos.proxy import Proxy
from chaos.server import Server
from helpers.kafka import Pipeline
from skewless import topology

SESSION_S = 3.0
TRANSACTION_S = 5.0


@dataclass
class ChaosContext:
    """One run under faults."""

    rng: Random
    journal: Journal
    pipeline: Pipeline
    process_group: ProcessGroup
    server: Server
    proxy: Proxy
    progress: Progress
    used: set[str] = field(default_factory=set)
    """Resources that only one fault at a time may use."""
    recoveries: list[float] = field(default_factory=list)
    """Seconds from each restart of the broker until all stages have committed all their partitions again."""
    pauses: list[tuple[str, float]] = field(default_factory=list)
    """Rebalances (join or leave), and the longest time in s without progress of a partition of the stage."""
    spans: list[tuple[str, str, float]] = field(default_factory=list)
    """Rebalances: what, stage, time."""

    @classmethod
    def of(  # noqa: PLR0913 - by name
        cls, seed: int, journal: Journal, pipeline: Pipeline, server: Server, proxy: Proxy, *, strict: bool
    ) -> ChaosContext:
        """Create the context of a seed, before any process runs."""
        process_group = ProcessGroup(pipeline, journal, strict=strict)
        progress = Progress(server.bootstrap, {})
        context = cls(Random(seed), journal, pipeline, process_group, server, proxy, progress)  # noqa: S311 - seeded, not secret
        process_group.unreachable = lambda: bool(context.used & {"broker", "network"})
        return context

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages of the pipeline."""
        return tuple(row.name for row in topology.needed_stages(self.pipeline.settings))

    def pick(self, *, but: tuple[str, ...] = ()) -> StageProcess | None:
        """Choose a running process."""
        members = [member for member in self.process_group.running() if member.stage not in but and member.again]
        return self.rng.choice(members) if members else None

    def arm(self, member: StageProcess, point: str, do: str, **more: object) -> Path:
        """Arm a fault point."""
        self.journal.write(f"arm {member.name} at {point}: {do}" + "".join(f" {k}={v}" for k, v in more.items()))
        return self.pipeline.arm(member.name, point, do, **more)

    def pids(self, members: list[StageProcess]) -> frozenset[int]:
        """Process ids of the running processes."""
        return frozenset(member.child.pid for member in members if member.child is not None)

    def now(self) -> float:
        """Return the seconds of the monotonic clock."""
        return time.monotonic()
