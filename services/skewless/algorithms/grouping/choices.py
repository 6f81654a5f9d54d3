"""D_CHOICES and W_CHOICES: more than two choices for the head of the keys (Nasir et al., ICDE 2016, arXiv 1510.05714).

A key is in the head while its estimated share of all tuples so far, including the current one, is above head_share / W.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.grouping.base import KeyBatch, LoadGrouping, Widths, whole_number
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.grouping.options import ChoicesOptions, GroupingOptions
from skewless.algorithms.hashing import hashes_of_keys
from skewless.algorithms.jit import jit
from skewless.algorithms.sketch import SpaceSaving
from skewless.errors import ConfigurationError

TAIL_WIDTH = 2
"""Candidates of a key outside the head, as with PARTIAL_KEY."""

STALENESS = 64
"""D_CHOICES computes d again when the number of tuples has grown by 1/64: no share can change by more in between. To
compute d at every change of the head is too expensive: with many shares near the bound, nearly every tuple changes it.
"""

NO_LIMIT = 1 << 62

TAIL = -1
"""Row of a tuple whose key is not in the head."""


class HeadGrouping(LoadGrouping):
    """Sends a tuple to the least loaded candidate of its key; on a tie, the first. Subclasses set the head's width."""

    size_setting: ClassVar[str | None] = "router.choices.sketch_size"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._options = options.choices
        self._check_sketch(workers)
        self._sketch = SpaceSaving(self._options.sketch_size)

    @classmethod
    def excess(cls, workers: int, options: GroupingOptions) -> str | None:
        """Return why the sketch is too small for this number of workers, or None."""
        return _sketch_problem(cls.name, workers, options.choices)

    def _check_sketch(self, workers: int) -> None:
        if problem := _sketch_problem(self.name, workers, self._options):
            raise ConfigurationError(problem)

    @abstractmethod
    def _width(self) -> tuple[int, int]:
        """Return the number of candidates of a key in the head, and the number of tuples for which it is valid."""

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - does not depend on time
        """Choose the workers in a second pass, after all keys are counted: the sketch does not depend on the loads."""
        hashes = hashes_of_keys(batch.keys, HOME_SEED)
        hot, segments = self._count(batch.codes, hashes)
        tail = candidates(hashes, TAIL_WIDTH, self._workers)
        rows, head = self._head(batch.codes, hashes, hot, segments)
        chosen = np.empty(len(hot), dtype=np.int32)
        for part, width in segments:
            codes = batch.codes[part]
            if width >= self._workers:
                chosen[part] = _least_loaded_of_all(codes, hot[part], tail, self._sent)
            else:
                head_candidates = np.ascontiguousarray(head[:, :width])
                chosen[part] = _least_loaded(codes, rows[part], head_candidates, tail, self._sent)
        return chosen

    def _count(
        self, codes: NDArray[np.int32], hashes: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], list[tuple[slice, int]]]:
        """Return whether each tuple's key is in the head, and segments of tuples with their width."""
        previous_total = self._sketch.total
        segments = []
        estimates = np.empty(len(codes), dtype=np.int64)
        start = 0
        while start < len(codes):
            width, tuples = self._width()
            part = slice(start, min(start + tuples, len(codes)))
            estimates[part] = self._sketch.update(codes[part], hashes)
            segments.append((part, width))
            start = part.stop
        totals = np.arange(previous_total + 1, self._sketch.total + 1)
        return estimates * self._workers > self._options.head_share * totals, segments

    def _head(
        self,
        codes: NDArray[np.int32],
        hashes: NDArray[np.int64],
        hot: NDArray[np.bool_],
        segments: list[tuple[slice, int]],
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return each tuple's row in the candidates of the head, and these: the largest width of a segment below W."""
        width = max((width for _, width in segments if width < self._workers), default=0)
        if not width:
            return np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.int32)
        used = np.zeros(len(hashes), dtype=np.bool_)
        used[codes[hot]] = True
        rows = np.where(hot, (np.cumsum(used) - 1)[codes], TAIL)
        return rows, candidates(hashes[used], width, self._workers)

    def widths(self) -> Widths:
        """Return the widths of the head, hottest key first. Keys may change their index; all have the same width."""
        total = self._sketch.total
        head = self._sketch.above(self._options.head_share * total / self._workers)
        width = self._width()[0] if len(head) else TAIL_WIDTH
        return Widths(TAIL_WIDTH, np.full(len(head), width))

    def top_key_shares(self, limit: int) -> NDArray[np.float64]:
        """Return the shares by the estimates of the sketch."""
        estimates = self._sketch.entries()[1][::-1][:limit]
        return estimates / max(1, self._sketch.total)

    def resize(self, workers: int) -> None:
        """Reset all loads to zero. The sketch stays: the keys are as hot as before."""
        self._check_sketch(workers)
        super().resize(workers)

    def snapshot(self) -> dict[str, object]:
        """Return the tuples sent to each worker, and the sketch."""
        return super().snapshot() | {"sketch": self._sketch.snapshot()}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Restore the loads and the sketch."""
        super().restore(snapshot)
        self._sketch.restore(snapshot.get("sketch"))


def _sketch_problem(name: str, workers: int, options: ChoicesOptions) -> str | None:
    required = workers / options.head_share
    if options.sketch_size > required:
        return None
    return (
        f"{name} with {workers} workers needs choices.sketch_size above W / head_share = {required:.0f}, not"
        f" {options.sketch_size}, or keys that are new in the sketch look hot: raise it"
    )


class WChoicesGrouping(HeadGrouping):
    """The head chooses among all workers, the tail among two."""

    name: ClassVar[str] = "w_choices"

    def _width(self) -> tuple[int, int]:
        return self._workers, NO_LIMIT


class DChoicesGrouping(HeadGrouping):
    """The head chooses among d workers, the minimum for balance; the tail among two."""

    name: ClassVar[str] = "d_choices"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._choices = 0
        self._choices_until = 0

    def _width(self) -> tuple[int, int]:
        total = self._sketch.total
        if total >= self._choices_until:
            head = self._sketch.above(self._options.head_share * total / self._workers)
            self._choices = min_choices(head / max(total, 1), self._workers, self._options.epsilon)
            self._choices_until = total + max(total // STALENESS, 1)
        return self._choices, self._choices_until - total

    def resize(self, workers: int) -> None:
        """Also compute d again, for the new number of workers."""
        super().resize(workers)
        self._choices_until = 0

    def snapshot(self) -> dict[str, object]:
        """Also return d, and the number of tuples up to which it is valid."""
        return super().snapshot() | {"choices": self._choices, "choices_until": self._choices_until}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Also restore d."""
        super().restore(snapshot)
        self._choices = whole_number(snapshot.get("choices"))
        self._choices_until = whole_number(snapshot.get("choices_until"))


def candidates(hashes: NDArray[np.int64], width: int, workers: int) -> NDArray[np.int32]:
    """Return `width` distinct workers per key, or all workers if there are fewer.

    With a smaller width, the candidates are the first ones of a larger width. The first candidate is the key's worker
    with KEY. The others are drawn by splitmix64 (Steele et al., OOPSLA 2014), seeded with the hash. The usual method
    for two candidates, two hashes mod W, gives the same worker twice for one key in W.
    """
    draws = np.arange(min(width, workers), dtype=np.uint64)
    mixed = hashes.view(np.uint64)[:, np.newaxis] + draws * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    mixed[:, 0] = np.abs(hashes).view(np.uint64)
    return _shuffled_workers((draws + mixed % (np.uint64(workers) - draws)).astype(np.int32), workers)


@jit
def _shuffled_workers(swaps: NDArray[np.int32], workers: int) -> NDArray[np.int32]:
    """Return the first workers of a Fisher-Yates shuffle for each row of swaps. The result replaces the swaps."""
    pool = np.arange(workers).astype(np.int32)
    for row in swaps:
        for place, swapped in enumerate(row):
            pool[place], pool[swapped] = pool[swapped], pool[place]
        drawn = pool[: len(row)].copy()
        for place in range(len(row) - 1, -1, -1):
            pool[place], pool[row[place]] = pool[row[place]], pool[place]
        row[:] = drawn
    return swaps


@jit
def min_choices(shares: NDArray[np.float64], workers: int, epsilon: float) -> int:
    """Return d for a head with these shares, highest first: the first number from max(2, ceil(p1 W)) on that balances.

    Returns W if no smaller d balances; the scheme is then W_CHOICES. Section 3.2 of the paper.
    """
    hottest = shares[0] if len(shares) else 0.0
    for width in range(max(TAIL_WIDTH, int(np.ceil(hottest * workers))), workers):
        if _is_balanced(shares, width, workers, epsilon):
            return width
    return workers if len(shares) else min(TAIL_WIDTH, workers)


@jit
def _is_balanced(shares: NDArray[np.float64], width: int, workers: int, epsilon: float) -> bool:
    """Return whether the candidates of every prefix of the head have the capacity for the expected load on them."""
    prefix, suffix = 0.0, shares.sum()
    tail = 1.0 - suffix
    unused = 1.0
    for share in shares:
        prefix += share
        suffix -= share
        unused *= (1.0 - 1.0 / workers) ** width
        used = 1.0 - unused
        if prefix + used**width * suffix + used**TAIL_WIDTH * tail > used + epsilon:
            return False
    return True


@jit
def _least_loaded(
    codes: NDArray[np.int32],
    rows: NDArray[np.int64],
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    sent: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Choose from the tuple's row in `head`, or from its key's row in `tail`. Counts each tuple in `sent`."""
    chosen = np.empty(len(codes), dtype=np.int32)
    for place, (code, row) in enumerate(zip(codes, rows)):  # noqa: B905 - numba does not support strict
        if row == TAIL:
            worker = tail[code, -1] if sent[tail[code, -1]] < sent[tail[code, 0]] else tail[code, 0]
        else:
            worker = head[row, 0]
            for turn in range(1, head.shape[1]):
                if sent[head[row, turn]] < sent[worker]:
                    worker = head[row, turn]
        sent[worker] += 1
        chosen[place] = worker
    return chosen


@jit
def _least_loaded_of_all(
    codes: NDArray[np.int32], hot: NDArray[np.bool_], tail: NDArray[np.int32], sent: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Choose from all workers if the tuple is hot, else from the key's row in `tail`. Counts each tuple in `sent`.

    Loads only grow. A worker with more than the lowest load is therefore skipped until no worker has the lowest load.
    This finds the first of the least loaded workers in constant time, independent of W.
    """
    chosen = np.empty(len(codes), dtype=np.int32)
    candidate = np.argmin(sent)
    lowest = sent[candidate]
    for row, code in enumerate(codes):
        if hot[row]:
            while sent[candidate] > lowest:
                candidate += 1
                if candidate == len(sent):
                    candidate = np.argmin(sent)
                    lowest = sent[candidate]
            worker = candidate
        else:
            worker = tail[code, -1] if sent[tail[code, -1]] < sent[tail[code, 0]] else tail[code, 0]
        sent[worker] += 1
        chosen[row] = worker
    return chosen
