"""Reports the progress of a long run on stderr: a progress bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

LINE_INTERVAL_S = 5.0
_is_hidden = ContextVar("is_hidden", default=False)


class ProgressReporter(Protocol):
    """Reports how much is done, in the unit of the run."""

    def update(self, now: float, done: int) -> None:
        """Report that `done` units are done at `now` (seconds of a monotonic clock)."""


def hide() -> Callable[[], None]:
    """Report no progress until the returned function is called."""
    token = _is_hidden.set(True)
    return lambda: _is_hidden.reset(token)


def is_hidden() -> bool:
    """Return whether no progress is reported."""
    return _is_hidden.get()


class SilentReporter:
    """Reports nothing."""

    def update(self, now: float, done: int) -> None:
        """See `ProgressReporter.update`."""


class LineReporter:
    """Prints a plain line at most every LINE_INTERVAL_S seconds."""

    def __init__(self, console: Console, total: int | None, now: float, unit: str) -> None:
        self._console = console
        self._total = total
        self._unit = unit
        self._start = self._last_line = now

    def update(self, now: float, done: int) -> None:
        """See `ProgressReporter.update`."""
        if now - self._last_line < LINE_INTERVAL_S:
            return
        self._last_line = now
        rate = done / (now - self._start)
        total = "" if self._total is None else f" of {self._total:,}"
        text = f"{done:,}{total} {self._unit}, {rate:,.0f}/s"
        if self._total is not None and rate > 0:
            text += f", {(self._total - done) / rate:.0f} s left"
        self._console.print(text, highlight=False, soft_wrap=True)


class BarReporter:
    """Draws a progress bar with the amount that is done, the rate and the remaining time."""

    def __init__(self, progress: Progress, task: TaskID, now: float) -> None:
        self._progress = progress
        self._task = task
        self._start = now

    def update(self, now: float, done: int) -> None:
        """See `ProgressReporter.update`."""
        rate = done / max(now - self._start, 1e-3)
        self._progress.update(self._task, completed=done, rate=f"{rate:,.0f}")


@contextlib.contextmanager
def report_progress(title: str, total: int | None, now: float, *, unit: str = "records") -> Iterator[ProgressReporter]:
    """Report progress towards `total` units (None: unknown) until the block ends, unless it is hidden."""
    if is_hidden():
        yield SilentReporter()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineReporter(console, total, now, unit)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,}} {unit}, {{task.fields[rate]}}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield BarReporter(progress, progress.add_task(title, total=total, rate="0"), now)
