"""Console output of the demo: a live table on a terminal, otherwise a plain line every few seconds."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from skewless.lab.demo.prometheus_scraper import Snapshot

LINE_INTERVAL_S = 5.0
RATE_SNAPSHOTS = 8
"""Number of snapshots over which the rate is computed."""
BAR_CELLS = 40
"""Width of a bar. Twice the fair share of a worker fills its bar."""
OVERLOADED_CELLS = BAR_CELLS * 0.55
"""A longer bar is red: the load is more than 10 % above the fair share."""


@dataclass
class RunProgress:
    """Progress of one pipeline's run."""

    title: str
    tuples: int
    """Number of tuples of the whole run."""
    windows: Sequence[int]
    """Ends of all windows in ms, ascending."""
    started: float = field(default_factory=time.monotonic)
    snapshot: Snapshot = field(default_factory=Snapshot)
    rate: float = 0.0
    """Tuples per second over the last RATE_SNAPSHOTS snapshots."""
    state: str = "starting the processes"
    closed: int = 0
    """Number of closed windows. It does not decrease when a process restarts and its watermark metric is missing."""
    _history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RATE_SNAPSHOTS))

    def update(self, now: float, snapshot: Snapshot) -> None:
        """Update the progress with the metrics that were scraped at `now`."""
        self._history.append((now, snapshot.tuples))
        (first_time, first_tuples), *_ = self._history
        self.rate = max(0.0, (snapshot.tuples - first_tuples) / max(1e-3, now - first_time))
        self.snapshot = snapshot
        if sum(snapshot.load):
            self.state = "counting" if snapshot.tuples < self.tuples else "closing the last windows"
        watermark_ms = snapshot.watermark_ms
        if watermark_ms is not None:
            self.closed = max(self.closed, sum(end <= watermark_ms for end in self.windows))

    def line(self, now: float) -> str:
        """Return the progress as one line of text."""
        text = f"{self.title}  {now - self.started:3.0f} s  {self.state}"
        load = self.snapshot.load
        if not sum(load):
            return text
        max_share = max(load, default=0) / max(1, sum(load))
        return (
            f"{text}  {self.share:.0%} of {self.tuples:,} tuples  {self.rate:,.0f}/s  "
            f"lag {self.snapshot.lag:,} records  {self.closed} of {len(self.windows)} windows closed  "
            f"most loaded worker {max_share:.1%}"
        )

    @property
    def share(self) -> float:
        """Fraction of the tuples that are merged."""
        return min(1.0, self.snapshot.tuples / max(1, self.tuples))


def render(run: RunProgress, now: float) -> RenderableType:
    """Render a run: progress, rate, lag and windows, and a bar per worker."""
    snapshot = run.snapshot
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(run.title, style="bold"),
        ProgressBar(total=max(1, run.tuples), completed=snapshot.tuples, width=BAR_CELLS),
        f"{run.share:4.0%}",
        f"{now - run.started:3.0f} s",
        Text(run.state, style="dim"),
    )
    statistics = Table.grid(padding=(0, 3))
    statistics.add_row(
        f"{run.rate:>9,.0f} tuples/s",
        f"lag {snapshot.lag:>7,} records",
        f"{run.closed:>2} of {len(run.windows)} windows closed",
        f"memory {snapshot.memory_bytes / 1e6:,.0f} MB",
    )
    return Group(head, statistics, _render_loads(snapshot.load))


def _render_loads(load: Sequence[int]) -> Table:
    """Render a bar per worker. Half of a bar is the fair share."""
    total = max(1, sum(load))
    rows = Table.grid(padding=(0, 1))
    for worker, rows_sent in enumerate(load):
        share = rows_sent / total
        cells = min(BAR_CELLS, round(share * len(load) * BAR_CELLS / 2))
        bar = Text("━" * cells + " " * (BAR_CELLS - cells), style="green" if cells <= OVERLOADED_CELLS else "red")
        rows.add_row(f"worker {worker:>2}", bar, f"{rows_sent:>9,}", f"{share:6.1%}")
    return rows


@dataclass
class LiveProgress:
    """Progress of the pipelines that read the live stream."""

    rate: float
    """Tuples per second of the stream."""
    seconds: float
    """Duration of the stream."""
    groupings: Sequence[str]
    elapsed_s: float = 0.0
    """Seconds since the first record; 0 while the processes start."""
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    """Tuples in results, and rows sent to each worker, by grouping."""

    def rate_of(self, grouping: str) -> float:
        """Return the tuples per second of a grouping so far."""
        return self.snapshots[grouping].tuples / self.elapsed_s if self.elapsed_s else 0.0

    def waiting_of(self, grouping: str) -> float:
        """Return the tuples of the stream that are not in results of a grouping so far."""
        return max(0.0, self.rate * self.elapsed_s - self.snapshots[grouping].tuples) if self.elapsed_s else 0.0

    def line(self) -> str:
        """Return the progress as one line of text."""
        rates = ", ".join(f"{grouping} {self.rate_of(grouping):,.0f}" for grouping in self.groupings)
        return f"{self.elapsed_s:.0f} of {self.seconds:.0f} s: {rates} tuples/s"


def render_live(live: LiveProgress) -> RenderableType:
    """Render a bar per grouping. A full bar is the rate of the stream."""
    if not live.elapsed_s:
        return Text("starting the processes", style="dim")
    rows = Table.grid(padding=(0, 2))
    for grouping in live.groupings:
        rate = live.rate_of(grouping)
        cells = min(BAR_CELLS, round(BAR_CELLS * rate / live.rate))
        bar = Text("━" * cells + " " * (BAR_CELLS - cells), style="green" if rate >= 0.9 * live.rate else "red")
        rows.add_row(grouping, bar, f"{rate:>7,.0f} tuples/s", f"{live.waiting_of(grouping):>9,.0f} wait")
    return Group(Text(f"{live.elapsed_s:.0f} of {live.seconds:.0f} s", style="dim"), rows)


class DemoConsole:
    """Prints the steps, the runs and the results of the demo."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def print_line(self, text: str = "", style: str | None = None) -> None:
        """Print a line of plain text."""
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=not self.console.is_terminal)

    def print_command(self, command: str) -> None:
        """Print a command on one line, which the terminal may show on several, so that it can be copied."""
        self.console.print(f"$ {command}", style="bold", highlight=False, markup=False, soft_wrap=True)

    def print_table(self, table: RenderableType) -> None:
        """Print an empty line and a table."""
        self.console.print()
        self.console.print(table)

    @contextlib.contextmanager
    def live(self, run: RunProgress) -> Iterator[Callable[[float, Snapshot], None]]:
        """Show a run until the block ends. Yields a function that updates it with a time and a snapshot."""
        with self._view(run.started, lambda now: render(run, now), run.line) as show:

            def update(now: float, snapshot: Snapshot) -> None:
                run.update(now, snapshot)
                show(now)

            yield update

    @contextlib.contextmanager
    def live_comparison(self, progress: LiveProgress) -> Iterator[Callable[[float, Mapping[str, Snapshot]], None]]:
        """Show the pipelines of the live stream until the block ends. Yields a function that updates them."""
        with self._view(0.0, lambda _: render_live(progress), lambda _: progress.line()) as show:

            def update(elapsed_s: float, snapshots: Mapping[str, Snapshot]) -> None:
                progress.elapsed_s, progress.snapshots = elapsed_s, snapshots
                show(elapsed_s)

            yield update

    @contextlib.contextmanager
    def _view(
        self, started: float, rendered: Callable[[float], RenderableType], line: Callable[[float], str]
    ) -> Iterator[Callable[[float], None]]:
        """Yield a function that shows the progress at a time: on a terminal as it is rendered, otherwise as a line."""
        if self.console.is_terminal:
            with Live(rendered(started), console=self.console, refresh_per_second=4, transient=True) as view:
                yield lambda now: view.update(rendered(now))
            return
        last_line = started

        def print_at_intervals(now: float) -> None:
            nonlocal last_line
            if now - last_line >= LINE_INTERVAL_S:
                last_line = now
                self.print_line(f"  {line(now)}")

        yield print_at_intervals
