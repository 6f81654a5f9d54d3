"""Back-pressure: when to read on, and which partitions rest. Pure: counts and time come in, decisions go out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skewless.transport.acks import Acks
from skewless.transport.settings import TransportSettings

WAITING_BATCHES = 2
"""A partition with this many unprocessed batches gets no more until it has caught up."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do before the next poll."""

    read: bool
    pause: frozenset[int] = frozenset()
    resume: frozenset[int] = frozenset()


class Flow:
    """Bounds what was read and is not processed, whatever a single poll brings.

    Where there is no room, reading waits for it; a partition that is full for longer than `patience_s` is paused, so
    that the others and rebalances go on.
    """

    def __init__(self, settings: TransportSettings, acks: Callable[[], Acks], patience_s: float) -> None:
        self._settings = settings
        self._acks = acks
        self._patience_s = patience_s
        self._owned: frozenset[int] = frozenset()
        self._paused: frozenset[int] = frozenset()
        self._full_since: float | None = None
        self._batches = 0
        self._bytes = 0

    def own(self, partitions: frozenset[int]) -> None:
        """Begin with these partitions, none of them paused."""
        self._owned, self._paused, self._full_since = partitions, frozenset(), None

    def pushed(self, size: int) -> None:
        """Note a batch that was handed over."""
        self._batches += 1
        self._bytes += size

    def decide(self, now: float) -> Decision:
        """Say whether to read on; `now` in seconds of any steady clock."""
        acks = self._acks()
        resume = frozenset(partition for partition in self._paused if acks.waiting(partition) <= 1)
        self._paused -= resume
        full = self._full(acks)
        if not full:
            self._full_since = None
            return Decision(read=True, resume=resume)
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since < self._patience_s:
            return Decision(read=False, resume=resume)
        self._paused |= full
        self._full_since = None
        return Decision(read=True, pause=full - resume, resume=resume - full)

    def _full(self, acks: Acks) -> frozenset[int]:
        active = self._owned - self._paused
        batches, size = self._batches - acks.retired_batches, self._bytes - acks.retired_bytes
        if size > self._settings.in_flight_bytes or batches > max(
            self._settings.in_flight_batches, WAITING_BATCHES * len(self._owned)
        ):
            return active
        return frozenset(partition for partition in active if acks.waiting(partition) >= WAITING_BATCHES)
