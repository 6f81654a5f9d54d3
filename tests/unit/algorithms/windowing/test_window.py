"""The states of a window are those of the table, and a window store takes each of its transitions."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.aggregates.base import COUNT
from skewless.algorithms.windowing import window as module
from skewless.algorithms.windowing.assigner import tumbling
from skewless.algorithms.windowing.window import (
    TRANSITIONS,
    Chunk,
    ChunkId,
    IllegalEventError,
    Window,
    WindowEvent,
    WindowRows,
    WindowState,
)
from skewless.algorithms.windowing.window_store import KEPT_FLUSHES, WindowStore


@pytest.mark.parametrize("event", WindowEvent)
@pytest.mark.parametrize("state", WindowState)
def test_apply_follows_the_table_and_refuses_other_events(state: WindowState, event: WindowEvent) -> None:
    window = Window(60, state, rows=WindowRows([COUNT]))
    following = TRANSITIONS[state].get(event)
    if following is None:
        with pytest.raises(
            IllegalEventError, match=re.escape(f"60: event {event.value} is illegal in state {state.value}")
        ):
            window.apply(event)
        assert window.state is state
    else:
        window.apply(event)
        assert window.state is following
        assert (window.rows is None) == (following in (WindowState.CLOSED, WindowState.EXPIRED))


def test_docstring_describes_every_state_and_event() -> None:
    names = [*(state.name for state in WindowState), *(event.value for event in WindowEvent)]
    assert [name for name in names if not re.search(rf"^{name} +[A-Z]", module.__doc__ or "", re.MULTILINE)] == []


class StoreOfOneWindow:
    """A store with one window from 0 to 1000, and its chunks."""

    def __init__(self) -> None:
        self.store = WindowStore([COUNT], tumbling(1000), retention_ms=1000, updates=True, emit_interval_ms=100)
        self.chunks: dict[ChunkId, pa.Table] = {}

    def merge(self) -> None:
        self.store.merge(pa.table({"pane": [0], "key": ["a"], "count": np.ones(1, np.int64)}))

    def flush(self, watermark: int, now: int = 0) -> None:
        for part in self.store.flush(watermark, now):
            if isinstance(part, Chunk):
                self.chunks[part.id] = part.table

    def reopen(self) -> None:
        assert self.store.windows_to_reopen(np.zeros(1, np.int64)) == {0}
        assert self.store.reopen(0, self.chunks)


def test_window_store_takes_every_transition_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[WindowState, WindowEvent]] = set()
    apply = Window.apply

    def recorded(window: Window, event: WindowEvent) -> None:
        taken.add((window.state, event))
        apply(window, event)

    monkeypatch.setattr(Window, "apply", recorded)
    # All updates are emitted, and the window is reopened, corrected, released, and expires.
    one = StoreOfOneWindow()
    for now in (0, 1, 2, 100):  # the second update is deferred, the third too
        one.merge()
        one.flush(0, now)
    one.merge()
    one.flush(1000, 101)
    one.reopen()
    one.merge()
    one.flush(1000)
    for _ in range(KEPT_FLUSHES + 1):
        one.flush(1000)
    assert one.store.windows_to_reopen(np.zeros(1, np.int64)) == {0}
    one.flush(2000)
    assert list(one.store.starts) == []
    # The window closes while updates are deferred, and expires while it is reopened.
    one = StoreOfOneWindow()
    for _ in range(2):
        one.merge()
        one.flush(0)
    one.flush(1000)
    one.reopen()
    one.flush(2000)
    assert taken == {(state, event) for state, events in TRANSITIONS.items() for event in events}
