"""Selects windows of the results of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skewless.times import parse_instant

_NAMED = ("last", "open", "all")
_AT_A_TIME = "or a time within a window in ISO 8601"
WINDOWS = f"{', '.join(_NAMED)}, {_AT_A_TIME}"
ResultRecord = dict[str, Any]
"""A record of `aggregates`."""
Window = tuple[int, int]
"""Start and end (exclusive) of a window in ms."""
Selection = Callable[[list[Window], Callable[[], int | None]], set[Window]]
"""From all windows (ascending) and the time up to which they are closed, computed if needed, to the chosen windows."""


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

    def is_closed(window: Window, closed_until: int | None) -> bool:
        return closed_until is not None and window[1] <= closed_until

    def last(windows: list[Window], closed_until: Callable[[], int | None]) -> set[Window]:
        until = closed_until()
        closed = [window for window in windows if is_closed(window, until)]
        if not closed:
            on_open()
        return set(closed[-1:] or windows[-1:])

    def still_open(windows: list[Window], closed_until: Callable[[], int | None]) -> set[Window]:
        until = closed_until()
        return {window for window in windows if not is_closed(window, until)}

    match window:
        case "all":
            return lambda windows, _closed_until: set(windows)
        case "last":
            return last
        case "open":
            return still_open
    instant = parse_instant("window", window, WINDOWS)
    return lambda windows, _closed_until: {window for window in windows if window[0] <= instant < window[1]}
