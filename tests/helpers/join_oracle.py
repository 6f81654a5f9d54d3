"""Plain definition of the windowed join, to compare with: no batches, no state, one record after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from skewless.algorithms.join.window_join import JoinRules


class Event(NamedTuple):
    """A record of one side. Its offset is its position in the log."""

    id: str
    time: int


class Answer(NamedTuple):
    """What becomes of the records of two logs, by their offsets. The others still wait."""

    pairs: set[tuple[int, int]]
    unmatched_left: set[int]
    unmatched_right: set[int]
    late_left: set[int]
    late_right: set[int]


def late(log: Sequence[Event], disorder_ms: int) -> set[int]:
    """Find the records that are older than the largest time before them minus the disorder."""
    largest = accumulate((event.time for event in log), max)
    return {
        at
        for at, (event, before) in enumerate(zip(log[1:], largest, strict=False), 1)
        if event.time < before - disorder_ms
    }


def answer(left: Sequence[Event], right: Sequence[Event], rules: JoinRules, *, ended: bool = False) -> Answer:
    """Join two logs. With `ended`, both are at the end of time."""
    late_left, late_right = late(left, rules.left_disorder_ms), late(right, rules.right_disorder_ms)
    free: dict[str, list[int]] = defaultdict(list)
    for at, event in enumerate(right):
        if at not in late_right:
            free[event.id].append(at)
    pairs = set()
    waiting = []
    for at, event in enumerate(left):
        if at in late_left:
            continue
        partner = next((r for r in free[event.id] if _is_pair(event, right[r], rules)), None)
        if partner is None:
            waiting.append(at)
        else:
            free[event.id].remove(partner)
            pairs.add((at, partner))
    left_watermark = max((event.time for event in left), default=-(10**18)) - rules.left_disorder_ms
    right_watermark = max((event.time for event in right), default=-(10**18)) - rules.right_disorder_ms
    return Answer(
        pairs,
        {at for at in waiting if ended or right_watermark > left[at].time + rules.apart_ms},
        {at for ats in free.values() for at in ats if ended or left_watermark > right[at].time},
        late_left,
        late_right,
    )


def _is_pair(left: Event, right: Event, rules: JoinRules) -> bool:
    return 0 <= right.time - left.time <= rules.apart_ms
