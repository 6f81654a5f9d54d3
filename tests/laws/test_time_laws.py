"""What holds for panes and marks, whatever the times."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skewless.algorithms.watermark import END_OF_TIME, OriginMarks, SourceClock, WatermarkState
from skewless.algorithms.windows import starts

times = st.integers(-END_OF_TIME, END_OF_TIME - 1) | st.integers(-50, 50)
logs = st.lists(times, max_size=50)
reports = st.tuples(
    st.dictionaries(st.integers(0, 3), times | st.just(END_OF_TIME), max_size=4), st.frozensets(st.integers(0, 3))
)


def array(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


@given(log=logs, size=st.integers(1, 10**9))
def test_every_time_is_in_exactly_one_aligned_pane(log: list[int], size: int) -> None:
    found = starts(array(log), size).tolist()
    assert all(start <= time < start + size and start % size == 0 for start, time in zip(found, log, strict=True))


@given(log=logs, pane=st.integers(1, 10**6), panes=st.integers(1, 100))
def test_a_pane_lies_in_the_window_of_its_tuples(log: list[int], pane: int, panes: int) -> None:
    window = pane * panes
    assert starts(starts(array(log), pane), window).tolist() == starts(array(log), window).tolist()


@given(log=logs, lateness=st.integers(0, 100))
def test_lateness_is_the_plain_definition(log: list[int], lateness: int) -> None:
    clock = SourceClock(lateness)
    late = clock.observe(array(log)).tolist()
    assert late == [at > 0 and time < max(log[:at]) - lateness for at, time in enumerate(log)]
    assert clock.max_time == max(log, default=None)


@given(log=logs, lateness=st.integers(0, 100), data=st.data())
def test_lateness_does_not_depend_on_cuts_and_restarts(log: list[int], lateness: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=5)))
    late: list[bool] = []
    max_time: int | None = None
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        clock = SourceClock(lateness, max_time)
        late += clock.observe(array(log[start:end])).tolist()
        max_time = clock.max_time
    whole = SourceClock(lateness)
    assert late == whole.observe(array(log)).tolist()
    assert max_time == whole.max_time


@given(log=logs, lateness=st.integers(0, 100))
def test_late_is_exactly_what_the_mark_told_before(log: list[int], lateness: int) -> None:
    """What a stage may close at a mark can receive no tuple after it."""
    clock = SourceClock(lateness)
    for time in log:
        mark = clock.mark()
        assert clock.observe(array([time])).tolist() == [mark is not None and time < mark]


@given(said=st.lists(reports, max_size=8))
def test_watermark_is_the_minimum_of_the_active_or_the_maximum_of_the_idle(
    said: list[tuple[dict[int, int], frozenset[int]]],
) -> None:
    origins = OriginMarks(4)
    last = dict.fromkeys(range(4), WatermarkState())
    for marks, idle in said:
        origins.tell(marks, idle)
        last |= {at: WatermarkState(mark) for at, mark in marks.items()}
        last |= {at: WatermarkState(last[at].watermark, idle=True) for at in idle}
    running = [state for state in last.values() if state.watermark != END_OF_TIME]
    active = [state.watermark for state in running if not state.idle]
    known = [state.watermark for state in running if state.watermark is not None]
    if not running:
        assert origins.state() == WatermarkState(END_OF_TIME)
    elif active:
        assert origins.state() == WatermarkState(None if None in active else min(filter_none(active)))
    else:
        assert origins.state() == WatermarkState(max(known, default=None), idle=True)


def filter_none(values: list[int | None]) -> list[int]:
    return [value for value in values if value is not None]


histories = st.lists(st.tuples(st.lists(times, max_size=4).map(sorted), st.booleans()), min_size=1, max_size=4)
"""By origin: watermarks in the order of its log, and whether it is idle at the end."""


@given(histories=histories, data=st.data())
def test_what_is_closed_does_not_depend_on_how_the_reports_of_origins_are_mixed_and_cut(
    histories: list[tuple[list[int], bool]], data: st.DataObject
) -> None:
    """In any order of reading, with a commit after any report, the last watermark is the highest one.

    Each origin is idle at its end only: an idle origin that becomes active may lower the watermark.
    """
    left = {at: [*marks, None] if idle else list(marks) for at, (marks, idle) in enumerate(histories)}
    order = data.draw(st.permutations([at for at, own in left.items() for _ in own]))
    origins = OriginMarks(len(histories))
    closed_to: int | None = None
    for at in order:
        mark = left[at].pop(0)
        origins.tell({} if mark is None else {at: mark}, [at] if mark is None else [])
        watermark = origins.watermark()
        if watermark is not None and data.draw(st.booleans()):
            closed_to = watermark if closed_to is None else max(closed_to, watermark)
    reached = origins.watermark()
    assert closed_to is None or (reached is not None and reached >= closed_to)


@given(before=reports, said=st.lists(reports, max_size=4), exclude_idle=st.booleans())
def test_restored_marks_continue_identically(
    before: tuple[dict[int, int], frozenset[int]],
    said: list[tuple[dict[int, int], frozenset[int]]],
    *,
    exclude_idle: bool,
) -> None:
    origins, restored = (OriginMarks(4, exclude_idle=exclude_idle) for _ in range(2))
    origins.tell(*before)
    restored.tell({}, range(4))
    restored.decode(origins.encode())
    assert restored.state() == origins.state()
    for some in said:
        origins.tell(*some)
        restored.tell(*some)
        assert restored.state() == origins.state()
