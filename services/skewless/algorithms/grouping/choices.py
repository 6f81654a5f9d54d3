"""D_CHOICES and W_CHOICES: more than two choices for the head of the keys (Nasir et al., ICDE 2016, arXiv 1510.05714).

A key is in the head while its estimated share of all tuples so far, this one counted, is above head_share / W.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.compiled import compiled
from skewless.algorithms.grouping.base import Grouping, KeyBatch, Widths, array_of, whole_number
from skewless.algorithms.grouping.key import HOME_SEED
from skewless.algorithms.grouping.options import ChoicesOptions, GroupingOptions
from skewless.algorithms.hashing import hashes_of_keys
from skewless.algorithms.sketch import SpaceSaving
from skewless.errors import ConfigurationError

TAIL_WIDTH = 2
"""Candidates of a key outside the head, as under PARTIAL_KEY."""

STALENESS = 64
"""D_CHOICES computes d again whenever the tuples have become more by one in so many: no share can have moved by more
than 1/64 in between. At every change of the head it would be nearly every tuple where many shares are near the bound.
"""

FOR_EVER = 1 << 62

TAIL = -1
"""In the place of a row of the head: the tuple's key is not in it."""


class HeadGrouping(Grouping):
    """Least loaded candidate of the tuple's key, the first on a tie; how many the head has is up to the subclass."""

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._options = options.choices
        self._check_sketch(workers)
        self._sketch = SpaceSaving(self._options.sketch_size)
        self._sent = np.zeros(workers, dtype=np.int64)

    @classmethod
    def excess(cls, workers: int, options: GroupingOptions) -> str | None:
        """Return why the sketch is too small for so many workers; None if it is not."""
        return _excess(cls.name, workers, options.choices)

    def _check_sketch(self, workers: int) -> None:
        if problem := _excess(self.name, workers, self._options):
            raise ConfigurationError(problem)

    @abstractmethod
    def _width(self) -> tuple[int, int]:
        """How many candidates a key of the head has now, and for how many tuples more."""

    def assign(self, batch: KeyBatch, now: int) -> NDArray[np.int32]:  # noqa: ARG002 - time plays no part
        """Count every tuple's key in the sketch, which knows no loads; then choose the workers."""
        hashes = hashes_of_keys(batch.keys, HOME_SEED)
        hot, stretches = self._count(batch.codes, hashes)
        tail = candidates(hashes, TAIL_WIDTH, self._workers)
        rows, head = self._head(batch.codes, hashes, hot, stretches)
        chosen = np.empty(len(hot), dtype=np.int32)
        for part, width in stretches:
            codes = batch.codes[part]
            if width >= self._workers:
                chosen[part] = _least_loaded_of_all(codes, hot[part], tail, self._sent)
            else:
                among = np.ascontiguousarray(head[:, :width])
                chosen[part] = _least_loaded(codes, rows[part], among, tail, self._sent)
        return chosen

    def _count(
        self, codes: NDArray[np.int32], hashes: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], list[tuple[slice, int]]]:
        """Whether each tuple's key is in the head, and the stretches of one width."""
        before = self._sketch.total
        stretches = []
        estimates = np.empty(len(codes), dtype=np.int64)
        start = 0
        while start < len(codes):
            width, tuples = self._width()
            part = slice(start, min(start + tuples, len(codes)))
            estimates[part] = self._sketch.update(codes[part], hashes)
            stretches.append((part, width))
            start = part.stop
        totals = np.arange(before + 1, self._sketch.total + 1)
        return estimates * self._workers > self._options.head_share * totals, stretches

    def _head(
        self,
        codes: NDArray[np.int32],
        hashes: NDArray[np.int64],
        hot: NDArray[np.bool_],
        stretches: list[tuple[slice, int]],
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Row of each tuple in the candidates of the head, and these, as many as any stretch needs short of all."""
        width = max((one for _, one in stretches if one < self._workers), default=0)
        if not width:
            return np.empty(0, dtype=np.int64), np.empty((0, 0), dtype=np.int32)
        used = np.zeros(len(hashes), dtype=np.bool_)
        used[codes[hot]] = True
        rows = np.where(hot, (np.cumsum(used) - 1)[codes], TAIL)
        return rows, candidates(hashes[used], width, self._workers)

    def widths(self) -> Widths:
        """Tell the widths of the head, hottest key first: keys change places, but all of the head have one width."""
        total = self._sketch.total
        head = self._sketch.above(self._options.head_share * total / self._workers)
        width = self._width()[0] if len(head) else TAIL_WIDTH
        return Widths(TAIL_WIDTH, np.full(len(head), width))

    def hottest_shares(self, most: int) -> NDArray[np.float64]:
        """Shares by the sketch's estimates."""
        estimates = self._sketch.entries()[1][::-1][:most]
        return estimates / max(1, self._sketch.total)

    def resize(self, workers: int) -> None:
        """Start all loads at zero again, as PARTIAL_KEY does; which keys are hot has not changed."""
        self._check_sketch(workers)
        super().resize(workers)
        self._sent = np.zeros(workers, dtype=np.int64)

    def snapshot(self) -> dict[str, object]:
        """Tell the tuples sent to each worker and the sketch."""
        return super().snapshot() | {"sent": self._sent.tobytes(), "sketch": self._sketch.snapshot()}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Go on with the loads and the sketch of the snapshot."""
        super().restore(snapshot)
        self._sent = array_of(snapshot.get("sent"), np.int64, self._workers)
        self._sketch.restore(snapshot.get("sketch"))


def _excess(name: str, workers: int, options: ChoicesOptions) -> str | None:
    needed = workers / options.head_share
    if options.sketch_size > needed:
        return None
    return (
        f"{name} with {workers} workers needs choices.sketch_size above W / head_share = {needed:.0f}, not"
        f" {options.sketch_size}, or keys that are new in the sketch look hot: raise it"
    )


class WChoicesGrouping(HeadGrouping):
    """The head chooses among all workers, the tail among two."""

    name: ClassVar[str] = "w_choices"

    def _width(self) -> tuple[int, int]:
        return self._workers, FOR_EVER


class DChoicesGrouping(HeadGrouping):
    """The head chooses among d workers, as few as balance allows; the tail among two."""

    name: ClassVar[str] = "d_choices"

    def __init__(self, workers: int, options: GroupingOptions) -> None:
        super().__init__(workers, options)
        self._choices = 0
        self._choices_until = 0

    def _width(self) -> tuple[int, int]:
        total = self._sketch.total
        if total >= self._choices_until:
            head = self._sketch.above(self._options.head_share * total / self._workers)
            self._choices = fewest_choices(head / max(total, 1), self._workers, self._options.epsilon)
            self._choices_until = total + max(total // STALENESS, 1)
        return self._choices, self._choices_until - total

    def resize(self, workers: int) -> None:
        """Also compute d for the new number of workers."""
        super().resize(workers)
        self._choices_until = 0

    def snapshot(self) -> dict[str, object]:
        """Also tell d and until how many tuples it stands."""
        return super().snapshot() | {"choices": self._choices, "choices_until": self._choices_until}

    def restore(self, snapshot: Mapping[str, object]) -> None:
        """Also go on with the d of the snapshot."""
        super().restore(snapshot)
        self._choices = whole_number(snapshot.get("choices"))
        self._choices_until = whole_number(snapshot.get("choices_until"))


def candidates(hashes: NDArray[np.int64], width: int, workers: int) -> NDArray[np.int32]:
    """Draw `width` distinct workers per key, all workers if there are fewer; fewer are the first of more.

    The first is the key's worker under KEY. The others come from splitmix64 (Steele et al., OOPSLA 2014), seeded with
    the hash: two hashes taken mod W, as usual for two candidates, fall together for one key in W.
    """
    turns = np.arange(min(width, workers), dtype=np.uint64)
    mixed = hashes.view(np.uint64)[:, np.newaxis] + turns * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    mixed[:, 0] = np.abs(hashes).view(np.uint64)
    return _dealt((turns + mixed % (np.uint64(workers) - turns)).astype(np.int32), workers)


@compiled
def _dealt(swaps: NDArray[np.int32], workers: int) -> NDArray[np.int32]:
    """Shuffle all workers by Fisher and Yates, as far as there are swaps, for each row anew."""
    pool = np.arange(workers).astype(np.int32)
    for row in swaps:
        for place, other in enumerate(row):
            pool[place], pool[other] = pool[other], pool[place]
        dealt = pool[: len(row)].copy()
        for place in range(len(row) - 1, -1, -1):
            pool[place], pool[row[place]] = pool[row[place]], pool[place]
        row[:] = dealt
    return swaps


@compiled
def fewest_choices(shares: NDArray[np.float64], workers: int, epsilon: float) -> int:
    """Find d for a head with these shares, highest first: the first from ceil(p1 W) on that balances, but at least 2.

    W when none does: then the scheme is W_CHOICES. Section 3.2 of the paper.
    """
    hottest = shares[0] if len(shares) else 0.0
    for width in range(max(TAIL_WIDTH, int(np.ceil(hottest * workers))), workers):
        if _balances(shares, width, workers, epsilon):
            return width
    return workers if len(shares) else min(TAIL_WIDTH, workers)


@compiled
def _balances(shares: NDArray[np.float64], width: int, workers: int, epsilon: float) -> bool:
    """Whether the candidates of every prefix of the head can take the load that must or may go there."""
    prefix, rest = 0.0, shares.sum()
    tail = 1.0 - rest
    missed = 1.0
    for share in shares:
        prefix += share
        rest -= share
        missed *= (1.0 - 1.0 / workers) ** width
        reached = 1.0 - missed
        if prefix + reached**width * rest + reached**TAIL_WIDTH * tail > reached + epsilon:
            return False
    return True


@compiled
def _least_loaded(
    codes: NDArray[np.int32],
    rows: NDArray[np.int64],
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    sent: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Choose in the tuple's row of `head`, or in its key's of `tail`; counts it in `sent`."""
    chosen = np.empty(len(codes), dtype=np.int32)
    for place, (code, row) in enumerate(zip(codes, rows)):  # noqa: B905 - numba knows no strict
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


@compiled
def _least_loaded_of_all(
    codes: NDArray[np.int32], hot: NDArray[np.bool_], tail: NDArray[np.int32], sent: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Choose among all workers, or for a tuple that is not hot among the key's two in `tail`; counts it in `sent`.

    Loads only grow, so a worker that was passed because it had more than the lowest load need not be looked at again
    until no worker has that load: this finds the first of the least loaded in constant time, whatever W.
    """
    chosen = np.empty(len(codes), dtype=np.int32)
    least = np.argmin(sent)
    lowest = sent[least]
    for row, code in enumerate(codes):
        if hot[row]:
            while sent[least] > lowest:
                least += 1
                if least == len(sent):
                    least = np.argmin(sent)
                    lowest = sent[least]
            worker = least
        else:
            worker = tail[code, -1] if sent[tail[code, -1]] < sent[tail[code, 0]] else tail[code, 0]
        sent[worker] += 1
        chosen[row] = worker
    return chosen
