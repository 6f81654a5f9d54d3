"""Health of a stage process: the reasons for which it is not alive or not ready, for its probes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from skewless.engine.stage_runtime import StageRuntime

HEARTBEAT_S = 1.0
KAFKA = "Kafka"


class Health:
    """Liveness and readiness of a stage process.

    Alive: the event loop and the consumer thread have both made progress recently. Ready: the output of the process is
    ready, and its assigned partitions are restored.
    """

    def __init__(self, liveness_timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._liveness_timeout_s = liveness_timeout_s
        self._clock = clock
        self._loop_heartbeat: float | None = None
        self.runtime: StageRuntime | None = None
        """Components of the stage; None until the stage is built, which requires an answer from Kafka."""
        self.waits_for = KAFKA
        """The server that a process waits for while it starts."""
        self.stopping = False
        """Whether the process is shutting down."""

    def liveness_failures(self) -> list[str]:
        """Return the parts of the process that are stuck; empty if it is alive."""
        heartbeats = {"event loop": self._loop_heartbeat}
        # The consumer thread is not checked while it restores state: that may take long, and has its own time limits.
        if self.runtime is not None and not self.runtime.executor.statistics.restoring:
            heartbeats["consumer thread"] = self.runtime.executor.statistics.last_poll_at
        now = self._clock()
        ages = {name: now - heartbeat for name, heartbeat in heartbeats.items() if heartbeat is not None}
        return [
            f"the {name} has made no progress for {seconds:.0f} s"
            for name, seconds in ages.items()
            if seconds > self._liveness_timeout_s
        ]

    def readiness_failures(self) -> list[str]:
        """Return the reasons for which the process is not ready; empty if it is ready."""
        if self.runtime is None:
            return [f"starting: {self.waits_for} has not answered yet"]
        executor, output = self.runtime.executor, self.runtime.output
        conditions = {
            "stopping": self.stopping,
            output.not_ready_reason: not output.ready,
            "restoring state": executor.statistics.restoring,
            "no partitions assigned by the group": not (
                executor.assignment.established or executor.statistics.restoring
            ),
        }
        reasons = [reason for reason, applies in conditions.items() if applies]
        return reasons if executor.step.stalled is None else [*reasons, executor.step.stalled]

    def waiting(self) -> list[str]:
        """Return what the process waits for although it is ready."""
        return [] if self.runtime is None else list(self.runtime.executor.step.waiting)

    @property
    def ready(self) -> bool:
        """Whether the process is ready."""
        return not self.readiness_failures()

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Monitor the running event loop until the end of the block."""

        async def beat() -> None:
            while True:
                self._loop_heartbeat = self._clock()
                await asyncio.sleep(HEARTBEAT_S)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            with suppress(asyncio.CancelledError):
                task.cancel()
