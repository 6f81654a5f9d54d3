"""How far a long run has come: a bar where there is a terminal, else a plain line now and then, both on stderr."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 5.0


class Shown(Protocol):
    """Somewhere to show how far it is."""

    def update(self, now: float, done: int) -> None:
        """Show `done` records at `now` (seconds of a clock that only goes forward)."""
        ...


class Lines:
    """A plain line at most every LINE_EVERY_S seconds."""

    def __init__(self, console: Console, total: int | None, now: float) -> None:
        self._console = console
        self._total = total
        self._start = self._last = now

    def update(self, now: float, done: int) -> None:
        """See `Shown.update`."""
        if now - self._last < LINE_EVERY_S:
            return
        self._last = now
        rate = done / (now - self._start)
        text = f"{done:,} records, {rate:,.0f}/s"
        if self._total is not None and rate > 0:
            text += f", {(self._total - done) / rate:.0f} s left of {self._total:,} records"
        self._console.print(text, highlight=False, soft_wrap=True)


class Bar:
    """A bar with records, rate and time left."""

    def __init__(self, progress: Progress, task: TaskID, now: float) -> None:
        self._progress = progress
        self._task = task
        self._start = now

    def update(self, now: float, done: int) -> None:
        """See `Shown.update`."""
        rate = done / max(now - self._start, 1e-3)
        self._progress.update(self._task, completed=done, rate=f"{rate:,.0f}")


@contextlib.contextmanager
def shown(title: str, total: int | None, now: float) -> Iterator[Shown]:
    """Show progress towards `total` records (None: unknown) until the block ends."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(console, total, now)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} records, {task.fields[rate]}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield Bar(progress, progress.add_task(title, total=total, rate="0"), now)
