"""Reports the progress of a long run on stderr: a progress bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LINE_INTERVAL_S = 5.0
_is_hidden = ContextVar("is_hidden", default=False)

Report = Callable[[float, int], None]
"""Reports at a time (seconds of a monotonic clock) how much is done, in the unit of the run."""


def hide() -> Callable[[], None]:
    """Report no progress until the returned function is called."""
    token = _is_hidden.set(True)
    return lambda: _is_hidden.reset(token)


def is_hidden() -> bool:
    """Return whether no progress is reported."""
    return _is_hidden.get()


@contextlib.contextmanager
def report_progress(title: str, total: int | None, now: float, *, unit: str = "records") -> Iterator[Report]:
    """Report progress towards `total` units (None: unknown) until the block ends, unless it is hidden."""
    if is_hidden():
        yield lambda _now, _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield line_report(console, total, now, unit)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,}} {unit}, {{task.fields[rate]}}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total, rate="0")
        yield lambda at, done: progress.update(task, completed=done, rate=f"{done / max(at - now, 1e-3):,.0f}")


def line_report(console: Console, total: int | None, start: float, unit: str) -> Report:
    """Return a report that prints a plain line at most every LINE_INTERVAL_S seconds."""
    last_line = start

    def report(now: float, done: int) -> None:
        nonlocal last_line
        if now - last_line < LINE_INTERVAL_S:
            return
        last_line = now
        rate = done / (now - start)
        of_total = "" if total is None else f" of {total:,}"
        text = f"{done:,}{of_total} {unit}, {rate:,.0f}/s"
        if total is not None and rate > 0:
            text += f", {(total - done) / rate:.0f} s left"
        console.print(text, highlight=False, soft_wrap=True)

    return report
