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
from skewless.records import RunDistribution

TOP = 8
LAST_WINDOWS = 3
LONGEST_KEY = 40


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
    memory_bytes: int
    """Most resident memory of all its processes together."""
    distribution: RunDistribution

    @property
    def exact(self) -> bool:
        """Whether every window and key has its count."""
        return not self.wrong

    def __str__(self) -> str:
        rate = (
            f"{self.distribution.throughput_ratio:,.0f} tuples/s, at most {self.memory_bytes / 1e6:,.0f} MB of memory"
        )
        return (
            f"exact: {self.counted:,} tuples counted, {rate}" if self.exact else "NOT EXACT: " + "; ".join(self.wrong)
        )

    def facts(self) -> dict[str, object]:
        """Everything as a JSON object."""
        return asdict(self) | {"exact": self.exact, "distribution": _facts(self.distribution)}


def _facts(run: RunDistribution) -> dict[str, object]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


def comparison(outcomes: Sequence[Outcome]) -> RenderableType:
    """Put the groupings side by side."""
    table = Table(title="How the load was spread", title_justify="left", title_style="bold")
    table.add_column()
    for outcome in outcomes:
        table.add_column(outcome.grouping, justify="right")
    table.add_column("meaning", style="dim")
    runs = [outcome.distribution for outcome in outcomes]
    for name, meaning, values in (
        ("std_dev", "standard deviation of the workers' shares, percent", [f"{run.std_dev:.2f}" for run in runs]),
        ("imbalance", "(fullest worker - average) / tuples", [f"{run.imbalance:.4f}" for run in runs]),
        ("max/avg", "fullest worker / average: where workers are the limit, the loss of speed",
         [f"{run.max_over_avg:.2f}" for run in runs]),
        ("replication", "workers that held the same key, on average", [f"{run.dist_cost:.2f}" for run in runs]),
        ("throughput", "tuples per second, end to end, here", [f"{run.throughput_ratio:,.0f}" for run in runs]),
        ("seconds", "with starting and stopping the processes", [f"{outcome.seconds:.1f}" for outcome in outcomes]),
        ("counted", "tuples, over all windows and keys", [f"{outcome.counted:,}" for outcome in outcomes]),
        ("exact", "as an independent count in one process", ["yes" if outcome.exact else "NO" for outcome in outcomes]),
    ):  # fmt: skip
        table.add_row(name, *values, meaning)
    return table


def top_keys(cells: Cells, windows: Sequence[int], window_ms: int) -> RenderableType:
    """List the most frequent keys of the last windows."""
    table = Table(title="Most frequent keys of the last windows", title_justify="left", title_style="bold")
    table.add_column("window (UTC)")
    table.add_column("keys")
    by_window: dict[int, Counter[str]] = {window: Counter() for window in windows[-LAST_WINDOWS:]}
    for (window, key), count in cells.items():
        if window in by_window:
            by_window[window][key] = count
    for window, counts in by_window.items():
        keys = "  ".join(f"{_short(key)} {count:,}" for key, count in counts.most_common(TOP))
        table.add_row(f"{_time(window)} to {_time(window + window_ms)}", Text(keys))
    return table


def _short(key: str) -> str:
    shown = key if key.isprintable() else ascii(key)
    return shown if len(shown) <= LONGEST_KEY else shown[: LONGEST_KEY - 1] + "…"


def _time(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
