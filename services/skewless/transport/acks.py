"""Which batches are processed: pure bookkeeping between hand-over and commit.

Batches of a partition are processed in their order, so a partition needs one number: the offset behind its last
processed batch. Nothing is ever committed beyond it.
"""

from __future__ import annotations

from collections import deque


class Acks:
    """What was handed over and processed since partitions were taken over."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[tuple[int, int]]] = {}
        self._done: dict[int, int] = {}
        self.retired_bytes = 0
        """Bytes of all batches that were ever processed or dropped."""
        self.retired_batches = 0
        """Number of all batches that were ever processed or dropped."""

    def assign(self, partition: int) -> None:
        """Begin with a partition."""
        self.revoke(partition)
        self._waiting[partition] = deque()

    def revoke(self, partition: int) -> None:
        """Forget a partition with everything in flight."""
        for _, size in self._waiting.pop(partition, ()):
            self.retire(size)
        self._done.pop(partition, None)

    def handed(self, partition: int, next_offset: int, size: int) -> None:
        """Note that a batch that ends before `next_offset` is on its way."""
        self._waiting[partition].append((next_offset, size))

    def retire(self, size: int) -> None:
        """Note that a batch of this many bytes takes up no room any more."""
        self.retired_bytes += size
        self.retired_batches += 1

    def done(self, partition: int, next_offset: int) -> None:
        """Note that everything before `next_offset` is processed; a batch may be done in parts, but in order."""
        waiting = self._waiting[partition]
        if not waiting or next_offset > waiting[0][0] or next_offset <= self._done.get(partition, -1):
            known = f"done up to {self._done.get(partition)}, waiting for {[end for end, _ in waiting][:5]}"
            raise ValueError(f"partition {partition}: batch up to {next_offset} is done out of order: {known}")
        self._done[partition] = next_offset
        if next_offset == waiting[0][0]:
            self.retire(waiting.popleft()[1])

    def waiting(self, partition: int) -> int:
        """Count the batches of a partition that are on their way."""
        return len(self._waiting.get(partition, ()))

    @property
    def any_waiting(self) -> bool:
        """Whether a batch is on its way."""
        return any(self._waiting.values())
