"""The demo's results, for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from skewless.demo.expected import Cells
from skewless.public_records import RunDistribution

TOP = 5
LAST_WINDOWS = 3
LONGEST_KEY = 30


@dataclass(frozen=True)
class Outcome:
    """What one pipeline came to."""

    grouping: str
    counted: int
    """Sum of all final counts."""
    wrong: tuple[str, ...]
    """Where it differs from what was expected; empty when it is exact."""
    seconds: float
    """From the start of its processes to the end of the last one."""
    counting_s: float
    """From the first tuple to the commit of the last counts."""
    memory_bytes: int
    """Most resident memory of all its processes together."""
    distribution: RunDistribution

    @property
    def exact(self) -> bool:
        """Whether every window and key has its count."""
        return not self.wrong

    @property
    def rate(self) -> float:
        """Tuples per second while it counted."""
        return self.counted / self.counting_s if self.counting_s else 0.0

    def __str__(self) -> str:
        if not self.exact:
            return "NOT EXACT: " + "; ".join(self.wrong)
        memory = self.memory_bytes / 1e6
        return f"exact: {self.counted:,} tuples counted, {self.rate:,.0f} tuples/s, at most {memory:,.0f} MB of memory"

    def facts(self) -> dict[str, object]:
        """Everything as a JSON object."""
        own = {"exact": self.exact, "tuples_per_s": self.rate, "distribution": _facts(self.distribution)}
        return asdict(self) | own


def _facts(run: RunDistribution) -> dict[str, object]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


LEGEND = """\
max/avg: where the workers are what limits the speed, the fullest one makes everything slower by this factor.
Workers per key: what a grouping pays for an even load, each of them keeps its own part of the key's count.
Exact: every key of every window has the count that this process found by itself."""


def comparison(outcomes: Sequence[Outcome]) -> RenderableType:
    """Put the groupings side by side."""
    table = Table(title="Groupings side by side", title_justify="left", title_style="bold")
    table.add_column()
    for outcome in outcomes:
        table.add_column(outcome.grouping, justify="right")
    runs = [outcome.distribution for outcome in outcomes]
    table.add_row("load: standard deviation, % points", *(f"{run.std_dev:.2f}" for run in runs))
    table.add_row("load: imbalance", *(f"{run.imbalance:.4f}" for run in runs))
    table.add_row("load: max/avg", *(f"{run.max_over_avg:.2f}" for run in runs))
    table.add_row("workers per key", *(f"{run.dist_cost:.2f}" for run in runs))
    table.add_row("tuples/s on this machine", *(f"{outcome.rate:,.0f}" for outcome in outcomes))
    table.add_row("seconds, with start and stop", *(f"{outcome.seconds:.1f}" for outcome in outcomes))
    table.add_row("tuples counted", *(f"{outcome.counted:,}" for outcome in outcomes))
    table.add_row("exact", *(Text("yes", "green") if outcome.exact else Text("NO", "red") for outcome in outcomes))
    return table


def top_keys(cells: Cells, windows: Sequence[int]) -> RenderableType:
    """List the most frequent keys of the last windows."""
    table = Table(title="Most frequent keys of the last windows", title_justify="left", title_style="bold")
    table.add_column("window from (UTC)", no_wrap=True)
    table.add_column("keys")
    by_window: dict[int, Counter[str]] = {window: Counter() for window in windows[-LAST_WINDOWS:]}
    for (window, key), count in cells.items():
        if window in by_window:
            by_window[window][key] = count
    for window, counts in by_window.items():
        keys = "  ".join(f"{_short(key)} {count:,}" for key, count in counts.most_common(TOP))
        table.add_row(_time(window), Text(keys))
    return table


def _short(key: str) -> str:
    shown = key if key.isprintable() else ascii(key)
    return shown if len(shown) <= LONGEST_KEY else shown[: LONGEST_KEY - 1] + "…"


def _time(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
