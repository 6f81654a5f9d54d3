"""The screen of `skewless top`: views of the workers, the keys and the stages, and what is wrong."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane
from textual.worker import Worker, WorkerState

from skewless.cli.interrupts import INTERRUPTED, TERMINATED
from skewless.cli.plain_text import duration, iso, printable
from skewless.cli.status_text import STAGE_COLUMNS, notes, recent_counts, stage_cells
from skewless.errors import SkewlessError
from skewless.operations.live_page.cards import level
from skewless.operations.status import PipelineStatus, largest_lag_s, processes
from skewless.wire.distribution import TickDistribution

NUMBERS_WIDTH = 46
"""Width of the screen that the columns of numbers and the scroll bar need."""
MIN_BAR = 8
NOTE_COLOURS = {"problem": "red", "warning": "yellow", "waiting": "yellow"}
COLOURS = {"even": "green", "high": "yellow", "overloaded": "red"}
"""Colour of a bar by the level of the load."""
Row = tuple[str | Text, ...]


def summary(report: PipelineStatus) -> str:
    """Return the state of a pipeline in one line, without the time. A pipeline that has finished has no rate."""
    load = report.load
    balance = f"{rate(load):,.1f} tuples/s, max/avg {load.max_over_avg:.2f}" if load else "no load yet"
    if load and report.state == "finished":
        balance = f"last tick {iso(load.tick_start)}, max/avg {load.max_over_avg:.2f}"
    problems = "".join(f"; problem: {problem}" for problem in report.problems)
    problems += "".join(f"; warning: {warning}" for warning in report.warnings)
    return f"{report.pipeline} {report.state}, {balance}, lag {duration(largest_lag_s(report))}{problems}"


def rate(load: TickDistribution) -> float:
    """Return the tuples per second of event time in a tick."""
    return 1000 * load.tuples / max(1, load.tick_end - load.tick_start)


def worker_rows(load: TickDistribution, width: int, *, by_load: bool) -> Iterator[Row]:
    """Yield the number, load and bar of each worker; `width` is that of the bar of the most loaded one."""
    rows, average = load.rows_by_worker, load.rows / len(load.rows_by_worker)
    order = sorted(range(len(rows)), key=lambda worker: (-rows[worker], worker)) if by_load else range(len(rows))
    most = max(*rows, 1)
    for worker in order:
        relative = rows[worker] / average if average else 0.0
        bar = Text("█" * round(width * rows[worker] / most), style=COLOURS[level(relative)])
        share = f"{rows[worker] / max(1, load.rows):.1%}"
        yield *_right(str(worker), f"{rows[worker]:,}", share, f"{relative:.2f}"), bar


def key_count(load: TickDistribution) -> str:
    """Return the number of keys of a tick as text."""
    return f"{'more than ' if load.reduced else ''}{load.keys:,}"


def key_rows(load: TickDistribution, *, by_load: bool) -> Iterator[Row]:
    """Yield the name, tuples, share and workers of each hot key, by tuples or by name."""
    keys = load.top_keys if by_load else sorted(load.top_keys, key=lambda key: key.key)
    for key in keys:
        share = key.tuples / max(1, load.tuples)
        yield (
            Text(printable(key.key)),
            *_right(f"{key.tuples:,}", f"{share:.1%}", f"{share * load.workers:.2f}", str(key.workers)),
        )


def stage_rows(report: PipelineStatus) -> Iterator[Row]:
    """Yield the processes, lag and event time of each stage."""
    for stage in report.stages:
        yield stage.name, *_right(*stage_cells(stage, report)), ", ".join(processes(stage, report.pipeline))


def _right(*cells: str) -> tuple[Text, ...]:
    return tuple(Text(cell, justify="right") for cell in cells)


COLUMNS = {
    "workers": ("worker", "rows", "share", "load / average", ""),
    "keys": ("key", "tuples", "share", "workers' shares", "workers"),
    "stages": ("stage", *STAGE_COLUMNS, "processes"),
}
"""Columns of each view."""


class TopApp(App[None]):
    """Application of `skewless top`. `read` returns the state of the pipeline and may take seconds."""

    TITLE = "skewless top"
    CSS = """
    Screen { overflow: hidden; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    #head { height: auto; padding: 0 1; }
    #notes { height: auto; max-height: 6; padding: 0 1; }
    DataTable { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("w", "view('workers')", "Workers"),
        Binding("k", "view('keys')", "Keys"),
        Binding("t", "view('stages')", "Stages"),
        Binding("s", "sort", "Sort"),
        Binding("r", "refresh", "Refresh"),
        Binding("ctrl+c", f"end({INTERRUPTED})", "Quit", show=False, priority=True),
    ]

    def __init__(self, first: PipelineStatus, read: Callable[[], PipelineStatus], interval_s: float) -> None:
        super().__init__()
        self._report = first
        self._read = read
        self._interval_s = interval_s
        self._by_load = dict.fromkeys(COLUMNS, True)
        self._error: str | None = None
        self._is_laid_out = False

    def compose(self) -> ComposeResult:
        """Lay out the screen: the state, the views, what is wrong, the keys."""
        yield Static(id="head")
        with TabbedContent(initial="workers"):
            for view in COLUMNS:
                with TabPane(view.capitalize(), id=view), Vertical():
                    yield DataTable(id=f"{view}-table", cursor_type="none", zebra_stripes=True)
        yield Static(id="notes")
        yield Footer()

    def on_mount(self) -> None:
        """Show the first state, and read the next ones."""
        self._is_laid_out = True
        self._show()
        # Without a handler the process would end at once, and leave the terminal in the mode of this screen.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: self.action_end(TERMINATED))
        self.set_interval(self._interval_s, self.action_refresh)

    def action_end(self, code: int) -> None:
        """Leave the screen, and end with an exit code."""
        self.exit(return_code=code)

    def action_view(self, view: str) -> None:
        """Switch to a view."""
        self.query_one(TabbedContent).active = view
        self._table(view).focus()

    def action_sort(self) -> None:
        """Sort the view by its other column."""
        view = self.query_one(TabbedContent).active
        self._by_load[view] = not self._by_load[view]
        self._show()

    def action_refresh(self) -> None:
        """Read the state in another thread, so that keys work meanwhile. A read that is under way is not repeated."""
        if not any(worker.name == "read" and worker.is_running for worker in self.workers):
            self.run_worker(self._read, name="read", thread=True, exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show the state that was read, or why it could not be read."""
        if event.state is WorkerState.SUCCESS and event.worker.result is not None:
            self._report, self._error = event.worker.result, None
        elif event.state is WorkerState.ERROR:
            if not isinstance(event.worker.error, SkewlessError):
                raise event.worker.error or RuntimeError("the read failed")
            self._error = str(event.worker.error)
        else:
            return
        self._show()

    def on_resize(self) -> None:
        """Draw the bars in the new width."""
        if self._is_laid_out:
            self.call_after_refresh(self._show)  # the size of the screen changes after this event

    def _table(self, view: str) -> DataTable[str | Text]:
        return self.query_one(f"#{view}-table", DataTable)

    def _show(self) -> None:
        report, load = self._report, self._report.load
        self.query_one("#head", Static).update(self._head())
        width = max(MIN_BAR, self.size.width - NUMBERS_WIDTH)
        self._fill("workers", worker_rows(load, width, by_load=self._by_load["workers"]) if load else ())
        self._fill("keys", key_rows(load, by_load=self._by_load["keys"]) if load else ())
        self._fill("stages", stage_rows(report))
        self.query_one("#notes", Static).update(Text("\n").join(self._notes()))

    def _head(self) -> Text:
        report, load = self._report, self._report.load
        colour = {"running": "green", "finished": "blue", "failing": "red"}[report.state]
        head = Text.assemble((report.pipeline, "bold"), " ", (report.state, colour), f"  {iso(report.time_ms)}\n")
        if load is None:
            return head.append("no tick was emitted yet")
        return head.append(
            f"{rate(load):,.1f} tuples/s, grouping {load.grouping}, {load.workers} workers, max/avg "
            f"{load.max_over_avg:.2f}, {key_count(load)} keys"
        )

    def _fill(self, view: str, rows: Sequence[Row] | Iterator[Row]) -> None:
        """Replace the rows of a view; its scroll position stays."""
        table = self._table(view)
        scroll = table.scroll_offset
        table.clear(columns=True)  # otherwise columns stay as wide as their widest cell ever was
        table.add_columns(*COLUMNS[view])
        table.add_rows(rows)
        table.scroll_to(y=scroll.y, animate=False)

    def _notes(self) -> Iterator[Text]:
        if self._report.recent:
            yield Text(f"last {duration(self._report.recent_s)}: {recent_counts(self._report)}", style="dim")
        if self._error is not None:
            yield Text(f"error: {self._error}", style="red")
        yield from (Text(f"{kind}: {text}", style=NOTE_COLOURS[kind]) for kind, text in notes(self._report))
