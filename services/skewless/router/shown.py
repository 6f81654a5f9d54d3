"""What a router shows of its load and of its grouping; looked at once in a while, never per tuple."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.distribution import imbalance, max_over_avg
from skewless.algorithms.grouping import Grouping
from skewless.algorithms.grouping.base import Widths
from skewless.step import RANKS, Sample

LOAD_MS = 10_000
"""So long a time the shown load is the load of."""
WIDTHS_MS = 1_000
"""So often the grouping is looked at for what it has decided."""


class Shown:
    """Follows a grouping and the tuples that it sent to each worker; `now` is the wall clock in ms."""

    def __init__(self, grouping: Grouping, max_workers: int) -> None:
        self._grouping = grouping
        self.sent = [0] * max_workers
        """Tuples by worker, since the process began; numbers of Python's, which add up fastest one by one."""
        self._recent = np.zeros(max_workers, dtype=np.int64)
        self._before = np.zeros(max_workers, dtype=np.int64)
        self._since: int | None = None
        """When the first tuple of the span under way was seen; None while there is none."""
        self._widths_due = 0
        self._widths = grouping.widths()
        self._grown = self._shrunk = 0

    def look(self, now: int) -> None:
        """Take note of load and decisions, where that is due."""
        self._note_load(now)
        if not now < self._widths_due <= now + WIDTHS_MS:
            self._widths_due = now + WIDTHS_MS
            self._note_decisions()

    def _note_load(self, now: int) -> None:
        """Take the load of a span that is over; after a pause the next one begins with its first tuple.

        The first span of all is shown while it lasts.
        """
        lasts = self._since is not None and 0 <= now - self._since < LOAD_MS
        if lasts and self._before.any():
            return
        sent = np.array(self.sent)
        load = sent - self._before
        if not load.any():
            self._since = self._since if lasts else None
            return
        if self._since is None:
            self._since = now
        elif not lasts:
            self._recent, self._before, self._since = load, sent, now
        if not self._before.any():
            self._recent = load

    def begin_again(self) -> None:
        """Hear that the grouping was given other workers, or what another one knew: it has decided nothing by that."""
        self._widths = self._grouping.widths()

    def _note_decisions(self) -> None:
        before, widths = self._widths, self._grouping.widths()
        self._widths = widths
        if before is None or widths is None:
            return
        grown, shrunk = decisions(before, widths)
        self._grown += grown
        self._shrunk += shrunk

    def samples(self) -> Iterator[Sample]:
        """Tell everything."""
        workers = self._grouping.workers
        yield Sample("skewless_router_info", (self._grouping.name,), 1)
        yield Sample("skewless_router_workers", (), workers)
        for worker, tuples in enumerate(self.sent):
            if tuples or worker < workers:
                yield Sample("skewless_router_tuples_total", (str(worker),), tuples)
        yield from self._load(workers)
        yield from self._decisions()
        for rank, share in enumerate(self._grouping.hottest_shares(RANKS).tolist(), start=1):
            yield Sample("skewless_router_hottest_ratio", (str(rank),), share)

    def _load(self, workers: int) -> Iterator[Sample]:
        load = self._recent[:workers]
        if not load.any():
            return
        for worker, share in enumerate((load / load.sum()).tolist()):
            yield Sample("skewless_router_load_ratio", (str(worker),), share)
        yield Sample("skewless_router_imbalance_ratio", (), imbalance(load))
        yield Sample("skewless_router_max_over_avg_ratio", (), max_over_avg(load))

    def _decisions(self) -> Iterator[Sample]:
        widths = self._widths
        if widths is None:
            return
        yield Sample("skewless_router_split_keys", (), int((widths.of_keys > widths.usual).sum()))
        yield Sample("skewless_router_widest_key_workers", (), int(widths.of_keys.max(initial=widths.usual)))
        yield Sample("skewless_router_scale_decisions_total", ("grow",), self._grown)
        yield Sample("skewless_router_scale_decisions_total", ("shrink",), self._shrunk)


def decisions(before: Widths, after: Widths) -> tuple[int, int]:
    """Count workers given to keys, and taken from keys, between two looks; unknown keys have as many as is usual."""
    size = max(len(before.of_keys), len(after.of_keys))
    change = _padded(after, size) - _padded(before, size)
    grown = int(change[change > 0].sum())
    return grown, grown - int(change.sum())


def _padded(widths: Widths, size: int) -> NDArray[np.int64]:
    known = widths.of_keys.astype(np.int64)
    return np.pad(known, (0, size - len(known)), constant_values=widths.usual)
