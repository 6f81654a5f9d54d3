"""Selects windows of the results of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from skewless.times import parse_instant

_NAMED = ("last", "open", "all")
_AT_A_TIME = "or a time within a window in ISO 8601"
WINDOWS = f"{', '.join(_NAMED)}, {_AT_A_TIME}"
ResultRecord = dict[str, Any]
"""A record of `aggregates`."""
Window = tuple[int, int]
"""Start and end (exclusive) of a window in ms."""


class Selection(NamedTuple):
    """A choice of windows."""

    by_closing: bool
    """Whether the choice depends on which windows are closed."""
    choose: Callable[[set[Window], set[Window]], set[Window]]
    """From all windows, and those of them that are closed, to the chosen ones."""


def closed_of(windows: set[Window], closed_until: int | None) -> set[Window]:
    """Return the windows that end at or before a time. None: it is unknown, so no window is known to be closed."""
    return {window for window in windows if closed_until is not None and window[1] <= closed_until}


def other_windows(window: str) -> str:
    """Return the choices of windows without this one."""
    return f"{', '.join(name for name in _NAMED if name != window)}, {_AT_A_TIME}"


def no_results(place: str, key: str | None) -> str:
    """Return the error of a topic or table without results, or without those of a key."""
    if key is not None:
        return f"{place} has no results of key {key}"
    return (
        f"{place} has no results: `skewless status` shows lag, late tuples and dead letters, and "
        "settings such as splitter.where may filter all records"
    )


def selection(window: str, on_open: Callable[[], None] = lambda: None) -> Selection:
    """Return the selection of a choice. Raises ConfigurationError for an unknown one.

    The selection calls `on_open` if `last` selects an open window, because none is closed.
    """

    def last(windows: set[Window], closed: set[Window]) -> set[Window]:
        if not closed:
            on_open()
        return {max(closed or windows)}

    match window:
        case "all":
            return Selection(False, lambda windows, _closed: windows)
        case "last":
            return Selection(True, last)
        case "open":
            return Selection(True, lambda windows, closed: windows - closed)
    instant = parse_instant("window", window, WINDOWS)
    return Selection(False, lambda windows, _closed: {window for window in windows if window[0] <= instant < window[1]})
