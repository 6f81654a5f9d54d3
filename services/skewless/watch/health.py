"""Whether a stage is alive and ready, and if not, why: what its probes are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from skewless.transport.app import Wiring

BEAT_S = 1.0


class Health:
    """Alive: loop and consumer thread have both moved lately. Ready: it works on what the group gave it."""

    def __init__(self, stuck_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stuck_after_s = stuck_after_s
        self._clock = clock
        self._loop_beat: float | None = None
        self.wiring: Wiring | None = None
        """What the stage is made of; None until it was built, for which Kafka must have answered."""
        self.stopping = False
        """Whether the process was told to end."""

    def why_not_alive(self) -> list[str]:
        """Name what is stuck; nothing when all is well. Restoring takes its time, and has limits of its own."""
        beats = {"event loop": self._loop_beat}
        if self.wiring is not None and not self.wiring.session.counts.restoring:
            beats["consumer thread"] = self.wiring.session.counts.beat
        now = self._clock()
        silent = {name: now - beat for name, beat in beats.items() if beat is not None}
        return [
            f"the {name} has not moved for {seconds:.0f} s"
            for name, seconds in silent.items()
            if seconds > self._stuck_after_s
        ]

    def why_not_ready(self) -> list[str]:
        """Name what is missing; nothing when all is well."""
        if self.wiring is None:
            return ["starting: Kafka has not answered yet"]
        session, outbox = self.wiring.session, self.wiring.outbox
        missing = {
            "stopping": self.stopping,
            "no producer: Kafka does not answer, or has to end an older transaction": not outbox.ready,
            "restoring state": session.counts.restoring,
            "no partitions assigned by the group": not (session.assigned or session.counts.restoring),
        }
        return [reason for reason, holds in missing.items() if holds]

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.why_not_ready()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Follow the event loop on which this is called, as long as the block runs."""

        async def beat() -> None:
            while True:
                self._loop_beat = self._clock()
                await asyncio.sleep(BEAT_S)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            with suppress(asyncio.CancelledError):
                task.cancel()
