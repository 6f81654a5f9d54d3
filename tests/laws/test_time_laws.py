"""What holds for panes and marks, whatever the times."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from skewless.algorithms.watermark import END_OF_TIME, IDLE, OriginMarks, SourceClock
from skewless.algorithms.windows import starts

times = st.integers(-END_OF_TIME, END_OF_TIME - 1) | st.integers(-50, 50)
logs = st.lists(times, max_size=50)
marks = st.dictionaries(st.integers(0, 3), times | st.just(IDLE), max_size=4)


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


@given(said=st.lists(marks, max_size=8))
def test_watermark_is_the_minimum_of_what_was_said_last(said: list[dict[int, int]]) -> None:
    origins = OriginMarks(4)
    last: dict[int, int] = {}
    for some in said:
        origins.tell(some)
        last |= some
    assert origins.watermark() == (min(last.values()) if len(last) == 4 else None)


@given(before=marks, said=st.lists(marks, max_size=4))
def test_restored_marks_continue_identically(before: dict[int, int], said: list[dict[int, int]]) -> None:
    origins, restored = OriginMarks(4), OriginMarks(4)
    origins.tell(before)
    restored.decode(origins.encode())
    for some in said:
        origins.tell(some)
        restored.tell(some)
        assert restored.watermark() == origins.watermark()
