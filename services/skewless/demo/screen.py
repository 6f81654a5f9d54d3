"""What the demo shows while it runs: a live table where there is a terminal, else a plain line now and then."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from skewless.demo.scrape import Snapshot

LINE_EVERY_S = 5.0
HISTORY = 8
"""Snapshots over which the rate is taken."""
BAR = 40
"""Cells of a worker's bar: twice its fair share fills it."""


@dataclass
class Run:
    """The run of one pipeline as it is shown."""

    title: str
    tuples: int
    """How many there are in all."""
    windows: Sequence[int]
    """Ends of all windows in ms, ascending."""
    started: float = field(default_factory=time.monotonic)
    snapshot: Snapshot = field(default_factory=Snapshot)
    rate: float = 0.0
    """Tuples per second, lately."""
    state: str = "starting the processes"
    closed: int = 0
    """How many windows are closed; a process that is started again does not open them."""
    _history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def update(self, now: float, snapshot: Snapshot) -> None:
        """Take over what the processes show at `now`."""
        self._history.append((now, snapshot.tuples))
        (then, before), *_ = self._history
        self.rate = max(0.0, (snapshot.tuples - before) / max(1e-3, now - then))
        self.snapshot = snapshot
        if sum(snapshot.load):
            self.state = "counting" if snapshot.tuples < self.tuples else "closing the last windows"
        mark = snapshot.watermark_ms
        self.closed = max(self.closed, 0 if mark is None else sum(end <= mark for end in self.windows))

    def line(self, now: float) -> str:
        """One line of text."""
        shown = self.snapshot
        text = f"{self.title}  {now - self.started:3.0f} s  {self.state}"
        if not sum(shown.load):
            return text
        most = max(shown.load, default=0) / max(1, sum(shown.load))
        return (
            f"{text}  {self.share:.0%} of {self.tuples:,} tuples  {self.rate:,.0f}/s  lag {shown.lag:,} records  "
            f"{self.closed} of {len(self.windows)} windows closed  fullest worker {most:.1%}"
        )

    @property
    def share(self) -> float:
        """How much of the run is done."""
        return min(1.0, self.snapshot.tuples / max(1, self.tuples))


def table(run: Run, now: float) -> RenderableType:
    """Draw a run: progress, rate, lag and windows, and a bar per worker."""
    shown = run.snapshot
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(run.title, style="bold"),
        ProgressBar(total=max(1, run.tuples), completed=shown.tuples, width=BAR),
        f"{run.share:4.0%}",
        f"{now - run.started:3.0f} s",
        Text(run.state, style="dim"),
    )
    facts = Table.grid(padding=(0, 3))
    facts.add_row(
        f"{run.rate:>9,.0f} tuples/s",
        f"lag {shown.lag:>7,} records",
        f"{run.closed:>2} of {len(run.windows)} windows closed",
        f"memory {shown.memory_bytes / 1e6:,.0f} MB",
    )
    return Group(head, facts, _loads(shown.load))


def _loads(load: Sequence[int]) -> Table:
    """Draw a bar per worker; half of it is the fair share."""
    total = max(1, sum(load))
    rows = Table.grid(padding=(0, 1))
    for worker, tuples in enumerate(load):
        share = tuples / total
        cells = min(BAR, round(share * len(load) * BAR / 2))
        fair = Text("━" * cells + " " * (BAR - cells), style="green" if cells <= BAR * 0.55 else "red")
        rows.add_row(f"worker {worker:>2}", fair, f"{tuples:>9,}", f"{share:6.1%}")
    return rows


class Screen:
    """Where the demo speaks: phases, runs and results."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def say(self, text: str = "", style: str | None = None) -> None:
        """Print a line."""
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=not self.console.is_terminal)

    def draw(self, renderable: RenderableType) -> None:
        """Print a table."""
        self.console.print()
        self.console.print(renderable)

    @contextlib.contextmanager
    def live(self, run: Run) -> Iterator[Callable[[float, Snapshot], None]]:
        """Show a run until the block ends, each time the yielded function is called with time and snapshot."""
        if not self.console.is_terminal:
            yield self._lines(run)
            return
        with Live(console=self.console, refresh_per_second=4, transient=True) as live:

            def show(now: float, snapshot: Snapshot) -> None:
                run.update(now, snapshot)
                live.update(table(run, now))

            yield show

    def _lines(self, run: Run) -> Callable[[float, Snapshot], None]:
        told = run.started

        def show(now: float, snapshot: Snapshot) -> None:
            nonlocal told
            run.update(now, snapshot)
            if now - told >= LINE_EVERY_S:
                told = now
                self.say(f"  {run.line(now)}")

        return show
